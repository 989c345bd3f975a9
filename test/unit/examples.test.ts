import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import * as tidemark from '../../src/index.ts';
import { StreamsBuilder, json, string } from '../../src/index.ts';
import { allExamples, type Example, examplesIn } from '../support/examples.ts';
import { CheckedFolder } from '../support/type-checker.ts';

// Processes of their own are started here, which on a busy machine takes longer than the tests of one process may.
vi.setConfig({ testTimeout: 60_000 });

/** What an example that imports nothing may use. */
const PRELUDE = [
  `import { ${Object.keys(tidemark).join(', ')} } from '../../src/index.ts';`,
  "import type { Topology } from '../../src/index.ts';",
  'declare const topology: Topology;',
  'interface Flight { origin: string; destination: string; delay: number; distance: number; carrier: string }',
  'const builder = new StreamsBuilder();',
  "const flights = builder.stream('flights', { key: string(), value: json<Flight>() });",
  '{',
].join('\n');

function moduleOf({ code }: Example): string {
  if (/^import /m.test(code)) return code.replaceAll("from 'tidemark'", "from '../../src/index.ts'");
  return `${PRELUDE}\n${code}\n}\nexport {};\n`;
}

function preludeLines({ code }: Example): number {
  return /^import /m.test(code) ? 0 : PRELUDE.split('\n').length;
}

describe('the examples in docstrings and pages', () => {
  const examples = allExamples();
  const folder = new CheckedFolder();
  const paths = new Map<Example, string>();

  beforeAll(() => {
    for (const [index, example] of examples.entries()) paths.set(example, folder.write(`example-${index}.ts`, moduleOf(example)));
  });
  afterAll(() => folder[Symbol.dispose]());

  it('compile', async () => {
    const faults = (await folder.check()).map(({ file, line, message }) => {
      const example = examples[Number(/\d+/.exec(file)?.[0])];
      return example === undefined
        ? `${file}: ${message}`
        : `${example.file}:${example.line + line - preludeLines(example) - 1}: ${message}`;
    });
    expect(faults).toEqual([]);
  });

  it('run, where they are marked so', async () => {
    const log = vi.spyOn(console, 'log').mockImplementation(() => undefined);
    const runnable = examples.filter(({ run }) => run);
    for (const example of runnable) {
      await expect(import(paths.get(example) ?? ''), `${example.file}:${example.line}`).resolves.toBeDefined();
    }
    log.mockRestore();
    expect(runnable.length).toBeGreaterThan(20);
  });

  it('are there for every method of the streams and every serde', () => {
    const flights = new StreamsBuilder().stream('flights', { key: string(), value: json() });
    const methods = [StreamsBuilder.prototype, flights, flights.split()].flatMap((object) => [
      ...Object.getOwnPropertyNames(object),
      ...Object.getOwnPropertyNames(Object.getPrototypeOf(object)),
    ]);
    const expected = [...new Set(methods), 'string', 'json', 'number', 'int32', 'int64', 'float64', 'bytes', 'nullable', 'describe'].filter(
      (name) => name !== 'constructor' && !(name in Object.prototype),
    );
    const shown = new Set(examples.map((example) => example.of));
    expect(expected.length).toBeGreaterThan(20);
    expect(expected.filter((name) => !shown.has(name))).toEqual([]);
  });
});

describe('the search for examples', () => {
  it('finds code, place, mark and what it belongs to', () => {
    const source = ['/**', ' * Adds.', ' *', ' * ```ts run', ' * add(1,', ' *   2);', ' * ```', ' */', 'export function add() {}'].join(
      '\n',
    );
    expect(examplesIn('src/add.ts', source)).toEqual([{ file: 'src/add.ts', line: 5, code: 'add(1,\n  2);', run: true, of: 'add' }]);
    expect(examplesIn('README.md', '```ts\nadd();\n```')).toEqual([
      { file: 'README.md', line: 2, code: 'add();', run: false, of: undefined },
    ]);
  });

  it('reports a faulty example', async () => {
    using folder = new CheckedFolder();
    folder.write(
      'example-0.ts',
      moduleOf({ file: '', line: 1, code: 'flights.filter((flight) => flight.speed > 1);', run: false, of: undefined }),
    );
    const [fault] = await folder.check();
    expect(fault?.message).toContain('speed');
  });
});
