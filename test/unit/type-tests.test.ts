import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { CheckedFolder } from '../support/type-checker.ts';

// Processes of their own are started here, which on a busy machine takes longer than the tests of one process may.
vi.setConfig({ testTimeout: 60_000 });

const TYPES = resolve(import.meta.dirname, '../types');
const DIRECTIVE = /^\s*\/\/ @ts-expect-error/;

describe('the misuse in the type tests', () => {
  it('is refused by the type checker, each piece of it, where nothing expects an error', async () => {
    using folder = new CheckedFolder();
    const expected: string[] = [];
    for (const file of readdirSync(TYPES).filter((name) => name.endsWith('.test-d.ts'))) {
      const lines = readFileSync(join(TYPES, file), 'utf8').split('\n');
      for (const [index, line] of lines.entries()) {
        if (!DIRECTIVE.test(line)) continue;
        lines[index] = '';
        expected.push(`${file}:${index + 2}`);
      }
      folder.write(file, lines.join('\n'));
    }

    const found = new Set((await folder.check()).map(({ file, line }) => `${file}:${line}`));

    expect(expected.length).toBeGreaterThan(60);
    expect([...found].toSorted()).toEqual(expected.toSorted());
  });
});
