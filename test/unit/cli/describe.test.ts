import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { loadTopology } from '../../../src/cli/describe.ts';

// Processes of their own are started here, which on a busy machine takes longer than the tests of one process may.
vi.setConfig({ testTimeout: 60_000 });

const ROOT = resolve(import.meta.dirname, '../../..');
mkdirSync(join(ROOT, '.tidemark'), { recursive: true });
const folder = mkdtempSync(join(ROOT, '.tidemark', 'describe-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let count = 0;

function file(source: string, extension = 'ts'): string {
  const path = join(folder, `topology-${count++}.${extension}`);
  writeFileSync(path, source);
  return path;
}

const IMPORT = "import { StreamsBuilder } from '../../src/index.ts';\nconst builder: StreamsBuilder = new StreamsBuilder();\n";
const STEPS = "builder.stream('a').to('b');\n";

describe('the topology of a file', () => {
  it.each([
    ['a topology', `${IMPORT}${STEPS}export default builder.build();`],
    ['a builder', `${IMPORT}${STEPS}export default builder;`],
    ['an export named topology', `${IMPORT}${STEPS}export const topology = builder.build();`],
    [
      'an export named topology beside a function that needs something else',
      `${IMPORT}${STEPS}export const topology = builder.build();\nexport default () => { throw new Error('needs options'); };`,
    ],
    ['a function that takes a builder', `export default function (builder) { ${STEPS} }`],
    ['a function that waits', `export default async function (builder) { await Promise.resolve(); ${STEPS} }`],
    ['a function that returns a builder', `${IMPORT}${STEPS}export default () => builder;`],
    ['a function that returns a topology', `${IMPORT}${STEPS}export default () => builder.build();`],
  ])('may be %s', async (_, source) => {
    const topology = await loadTopology(file(source));
    expect(topology.subTopologies.map(({ sources, sinks }) => [sources[0]?.topics, sinks[0]?.topic])).toEqual([[['a'], 'b']]);
  });

  it('may be in a CommonJS module', async () => {
    expect((await loadTopology(file(`module.exports = (builder) => { ${STEPS} };`, 'cjs'))).subTopologies).toHaveLength(1);
    expect((await loadTopology(file(`exports.topology = (builder) => { ${STEPS} };`, 'cjs'))).subTopologies).toHaveLength(1);
  });

  it('is missed with a clear error', async () => {
    await expect(loadTopology(join(folder, 'nowhere.ts'))).rejects.toThrow(/there is no file .*nowhere\.ts/);
    await expect(loadTopology(file('export const flights = 1;'))).rejects.toThrow(
      /has neither a default export nor an export named topology: export a topology/,
    );
    await expect(loadTopology(file('export default 7;'))).rejects.toThrow(/exports no topology: export a topology/);
    await expect(loadTopology(file('export default () => 7;'))).rejects.toThrow(/exports no topology/);
  });

  it('is not read from a file that starts an application, which would join its group', async () => {
    const application = `new Application({ applicationId: 'a', topology: builder.build(), kafka: { brokers: ['127.0.0.1:1'] } })`;
    const path = file(
      `import { Application } from '../../src/index.ts';\n${IMPORT}${STEPS}await ${application}.start();\nexport default builder;`,
    );
    await expect(loadTopology(path)).rejects.toThrow(/starts an application: put the topology into a file of its own/);
  });

  it('lets through what the module throws', async () => {
    await expect(loadTopology(file("throw new Error('its own');"))).rejects.toThrow('its own');
    await expect(loadTopology(file("export default (builder) => { builder.stream('a'); };"))).rejects.toThrow(
      /is read, but no step uses it/,
    );
  });
});

describe('tidemark describe', () => {
  const cli = file(
    "import { Command } from 'commander';\nimport { registerDescribe } from '../../src/cli/describe.ts';\nconst program = new Command();\nregisterDescribe(program);\nawait program.parseAsync();\n",
  );
  const run = (...given: string[]) =>
    promisify(execFile)(process.execPath, ['--import', 'tsx', cli, 'describe', ...given], { cwd: ROOT, timeout: 30_000 });

  it('prints the topology of a TypeScript file', async () => {
    const { stdout } = await run('topologies/hello.ts', '--guarantee', 'at-least-once');
    expect(stdout).toMatch(/^Topologies:\n {3}Sub-topology: 0\n {4}Source: /);
    expect(stdout).toContain('guarantee: at-least-once (written again when a worker dies)');
    const json = JSON.parse((await run('topologies/hello.ts', '--format', 'json')).stdout) as { guarantee: string };
    expect(json.guarantee).toBe('exactly-once');
  });

  it('refuses guarantees and formats that do not exist', async () => {
    await expect(run('topologies/hello.ts', '--guarantee', 'twice')).rejects.toThrow(
      /Allowed choices are exactly-once, at-least-once, at-most-once/,
    );
    await expect(run('topologies/hello.ts', '--format', 'svg')).rejects.toThrow(/Allowed choices are text, mermaid, json/);
  });
});
