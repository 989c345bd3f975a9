import { existsSync } from 'node:fs';
import { TOPOLOGY_IS_READ } from '../topology/reading.ts';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { type Command, Option } from 'commander';
import type * as Tsx from 'tsx/esm/api';
import { TopologyError } from '../model/errors.ts';
import { DESCRIBE_FORMATS, describe, type DescribeOptions } from '../topology/describe.ts';
import { StreamsBuilder } from '../topology/streams-builder.ts';
import type { Topology } from '../topology/topology.ts';

const EXPECTED =
  'export a topology as default (or as `topology`): what build() returned, a StreamsBuilder, or a function that takes a StreamsBuilder or returns either';

/** Adds `tidemark describe FILE`. */
export function registerDescribe(program: Command): void {
  program
    .command('describe')
    .argument('<file>', 'a module that exports a topology')
    .description('print the topology of a file, with the guarantee that each edge has')
    .addOption(
      new Option('--guarantee <guarantee>', 'of the application that is to run it')
        .choices(['exactly-once', 'at-least-once', 'at-most-once'])
        .default('exactly-once'),
    )
    .addOption(new Option('--format <format>', 'text, a Mermaid flowchart, or JSON').choices(DESCRIBE_FORMATS).default('text'))
    .action(async (file: string, options: DescribeOptions) => {
      process.stdout.write(`${describe(await loadTopology(file), options).trimEnd()}\n`);
    });
}

/**
 * The topology that a module exports. TypeScript is loaded by tsx where the process does not run TypeScript already. Throws TopologyError
 * where the file is missing or exports none; what the module itself throws comes through.
 */
export async function loadTopology(file: string): Promise<Topology> {
  const path = resolve(file);
  if (!existsSync(path)) throw new TopologyError(`there is no file ${path}`);
  const module = (await readingTopology(path, async () => await importModule(path))) as {
    readonly default?: unknown;
    readonly topology?: unknown;
  };
  // A CommonJS module's exports are its default; one compiled from `export default` has a default within.
  const inner = (module.default as { readonly default?: unknown; readonly topology?: unknown } | undefined) ?? {};
  const candidates = [module.default, module.topology, inner.default, inner.topology].filter((exported) => exported !== undefined);
  if (candidates.length === 0) throw new TopologyError(`${file} has neither a default export nor an export named topology: ${EXPECTED}`);
  // What is there already comes before what a function would make, which may need more than a builder.
  for (const candidate of candidates.toSorted((a, b) => Number(typeof a === 'function') - Number(typeof b === 'function'))) {
    const topology = await topologyOf(candidate);
    if (topology !== undefined) return topology;
  }
  throw new TopologyError(`${file} exports no topology: ${EXPECTED}`);
}

/** An application that the module starts by itself refuses: whoever asks for a picture must not become a member of a group that is at work. */
async function readingTopology<T>(path: string, load: () => Promise<T>): Promise<T> {
  const place = globalThis as { [TOPOLOGY_IS_READ]?: string };
  place[TOPOLOGY_IS_READ] = path;
  try {
    return await load();
  } finally {
    delete place[TOPOLOGY_IS_READ];
  }
}

/** Looks at shapes, since the module may have loaded a copy of this library of its own. */
async function topologyOf(exported: unknown): Promise<Topology | undefined> {
  if (isTopology(exported)) return exported;
  if (isBuilder(exported)) return exported.build();
  if (typeof exported !== 'function') return undefined;
  const builder = new StreamsBuilder();
  const returned: unknown = await (exported as (builder: StreamsBuilder) => unknown)(builder);
  if (returned === undefined) return builder.build();
  if (isTopology(returned)) return returned;
  return isBuilder(returned) ? returned.build() : undefined;
}

function isTopology(value: unknown): value is Topology {
  const { graph, subTopologies, sinkStages } = (value ?? {}) as Partial<Topology>;
  return typeof graph === 'object' && Array.isArray(subTopologies) && Array.isArray(sinkStages);
}

function isBuilder(value: unknown): value is StreamsBuilder {
  const { build, stream } = (value ?? {}) as Partial<StreamsBuilder>;
  return typeof build === 'function' && typeof stream === 'function';
}

async function importModule(path: string): Promise<unknown> {
  const url = pathToFileURL(path).href;
  // Where this file is TypeScript itself, whatever has loaded it loads others too.
  if (!/\.[cm]?tsx?$/.test(path) || import.meta.url.endsWith('.ts')) return import(url);
  let tsx: typeof Tsx;
  try {
    tsx = await import('tsx/esm/api');
  } catch (error) {
    if (stripsTypes()) return import(url);
    throw new TopologyError(`${path} is TypeScript, which needs tsx here (npm install --save-dev tsx), or Node 22.18 or later`, {
      cause: error,
    });
  }
  return tsx.tsImport(url, import.meta.url);
}

/** Whether Node runs TypeScript by itself. */
function stripsTypes(): boolean {
  return Boolean((process.features as { typescript?: unknown }).typescript);
}
