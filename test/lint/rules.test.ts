import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { directions } from './import-directions.ts';
import { expectations, lintTree, root, type Findings } from './lint-run.ts';

const bad = await expectations(join(root, 'test/lint/fixtures/bad'));
const good = await expectations(join(root, 'test/lint/fixtures/good'));
let found: Findings;

beforeAll(async () => {
  const folders = ['bad', 'good'].map((name) => join(root, 'test/lint/fixtures', name));
  const files = directions.map(
    ({ file, may, mayNot }) => [file, [...may, ...mayNot].map((specifier) => `export type * from '${specifier}';\n`).join('')] as const,
  );
  found = await lintTree(folders, new Map(files));
}, 60_000);

describe('a bad fixture fails exactly where it says', () => {
  it.each([...bad])('%s', (file, marks) => {
    expect(marks).not.toEqual([]);
    expect(found.get(file)).toEqual(marks);
  });
});

describe('a good fixture passes', () => {
  it.each([...good])('%s', (file) => {
    expect(found.get(file)).toBeUndefined();
  });
});

describe('imports go one way', () => {
  it.each(directions)('$file', ({ file, may, mayNot }) => {
    const refused = mayNot.map((_, index) => `line ${may.length + index + 1}: tidemark(import-direction)`);
    // The files import each other here, which is another rule's business.
    expect(found.get(file)?.filter((finding) => !finding.endsWith('no-cycle)')) ?? []).toEqual(refused.toSorted());
  });
});

it('each rule that the configuration names has a bad fixture', async () => {
  const config = JSON.parse(await readFile(join(root, '.oxlintrc.json'), 'utf8')) as { rules: Rules; overrides: { rules: Rules }[] };
  const named = [config, ...config.overrides].flatMap(({ rules }) =>
    Object.entries(rules)
      .filter(([, level]) => level !== 'off')
      .map(([rule]) => rule),
  );
  const proven = new Set([...bad.values()].flat().map((mark) => mark.replace(/^line \d+: (.+)\((.+)\)$/, '$1/$2')));
  expect(named.filter((rule) => !proven.has(rule))).toEqual([]);
});

type Rules = Record<string, unknown>;
