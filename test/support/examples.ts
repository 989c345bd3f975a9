import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const ROOT = resolve(import.meta.dirname, '../..');

/** One fenced block of TypeScript in a docstring or in a page. Marked `ts run`, it is run besides being type checked. */
export interface Example {
  /** Below the root. */
  readonly file: string;
  /** Of its first line of code, from 1. */
  readonly line: number;
  readonly code: string;
  readonly run: boolean;
  /** What the docstring stands before: the name of a function, a class or a method. */
  readonly of: string | undefined;
}

/** Every example in the docstrings of src/ and in the pages at the root. */
export function allExamples(): readonly Example[] {
  const sources = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'));
  const pages = readdirSync(ROOT).filter((name) => name.endsWith('.md'));
  return [...sources.map((name) => join('src', name)).toSorted(), ...pages.toSorted()].flatMap((file) =>
    examplesIn(file, readFileSync(join(ROOT, file), 'utf8')),
  );
}

export function examplesIn(file: string, text: string): readonly Example[] {
  const isPage = file.endsWith('.md');
  const lines = text.split('\n').map((line) => (isPage ? line : (/^\s*\* ?(.*)$/.exec(line)?.[1] ?? null)));
  const examples: Example[] = [];
  let open: { line: number; code: string[]; run: boolean } | undefined;
  for (const [index, line] of lines.entries()) {
    if (open === undefined) {
      const fence = /^```ts( run)?$/.exec(line ?? '');
      if (fence !== null) open = { line: index + 2, code: [], run: fence[1] !== undefined };
    } else if (line === '```') {
      examples.push({ file, line: open.line, code: open.code.join('\n'), run: open.run, of: isPage ? undefined : documented(text, index) });
      open = undefined;
    } else if (line === null) {
      throw new Error(`${file}:${open.line}: the example has no end`);
    } else {
      open.code.push(line);
    }
  }
  return examples;
}

/** The name of what is declared after the docstring that the line belongs to. */
function documented(text: string, line: number): string | undefined {
  const rest = text.split('\n').slice(line + 1);
  const end = rest.findIndex((candidate) => candidate.includes('*/'));
  const declaration = rest[end + 1] ?? '';
  return /^\s*(?:export )?(?:declare )?(?:async )?(?:function|class|interface|const|type)?\s*(\w+)/.exec(declaration)?.[1];
}
