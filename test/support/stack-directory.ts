import { chmodSync, mkdtempSync, readdirSync, readlinkSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Stack, stopStack } from '../../src/devstack/stack.ts';

const directories: string[] = [];

/** A directory for a stack of its own, removed by `removeDirectories`. */
export function freshDirectory(): string {
  const directory = mkdtempSync(join(realpathSync(tmpdir()), 'tidemark-stack-'));
  // Else root's database user could not reach it.
  chmodSync(directory, 0o755);
  directories.push(directory);
  return directory;
}

/** Ends and removes whatever was made since the last call. */
export async function removeDirectories(): Promise<void> {
  for (const directory of directories.splice(0)) {
    await stopStack({ directory, removeData: true });
    rmSync(directory, { recursive: true, force: true });
  }
}

/** All processes that work in the directory, Postgres' children among them: the test's own look, which trusts no book. */
export function processesOf(directory: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        return readlinkSync(`/proc/${pid}/cwd`).startsWith(join(directory, '.tidemark'));
      } catch {
        return false;
      }
    });
}

export function portsOf(stack: Stack): number[] {
  return [Number(stack.kafka.brokers.split(':')[1]), Number(new URL(stack.postgres.url).port)];
}
