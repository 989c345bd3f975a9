import { readFileSync } from 'node:fs';
import { Command } from 'commander';
import { TidemarkError } from '../model/errors.ts';
import { registerDescribe } from './describe.ts';
import { registerRun } from './run.ts';
import { registerStack } from './stack.ts';

const manifest = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
  version: string;
  description: string;
};

const program = new Command('tidemark').description(manifest.description).version(manifest.version);
registerStack(program);
registerDescribe(program);
registerRun(program);

try {
  await program.parseAsync();
} catch (error) {
  process.stderr.write(`tidemark: ${explain(error)}\n`);
  process.exitCode = 1;
}

/** Errors that are thrown on purpose say all in their message; others are defects, or come from what the user wrote, and show their stack. */
function explain(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error instanceof TidemarkError ? error.message : (error.stack ?? error.message);
}
