import { realpathSync, rmSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Environment } from './environment.ts';
import { placeOutside } from './local-postgres.ts';
import { isRunning, signal } from './process-identity.ts';
import { stopRecord } from './service-record.ts';
import { serviceWays } from './service-ways.ts';
import { serviceNames, StackBook } from './stack-state.ts';

/** Ends the services of runs whose process is no more (killed, crashed), and removes their folders. */
export async function removeDeadRuns(home: string, environment: Environment): Promise<void> {
  const names = await readdir(home).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  for (const name of names) {
    const pid = /^run-(\d+)-/.exec(name)?.[1];
    if (pid === undefined) continue;
    const book = new StackBook(join(home, name));
    // A run that has not begun its book yet is known by the process in its name.
    const alive = book.owner === undefined ? isPid(Number(pid)) : isRunning(book.owner);
    if (alive) continue;
    for (const service of serviceNames) {
      const record = book.get(service);
      if (record !== undefined) await stopRecord(service, record, environment);
    }
    removeFolder(book.directory);
  }
}

/** Removes a stack's folder with all data in it. Nothing of it may run any more. */
export function removeFolder(directory: string): void {
  const outside = resolved(join(directory, 'postgres'));
  if (outside !== undefined && dirname(outside) === placeOutside) rmSync(outside, { recursive: true, force: true });
  rmSync(directory, { recursive: true, force: true, maxRetries: 3 });
}

/**
 * The last resort for a process that ends without `stop()`: there is no time to wait any more. The same for one whose parent has gone, such as
 * a test worker that would otherwise run on for nobody. Returns what takes it back.
 */
export function endAtExit(book: StackBook): () => void {
  const end = (): void => {
    const servers = serviceNames.flatMap((name) => {
      const server = book.get(name)?.process;
      return server === undefined ? [] : [{ server, name }];
    });
    for (const { server, name } of servers) signal(server, serviceWays[name].lastSignal);
    // Synchronously, since nothing asynchronous happens any more: a server that still writes would keep its folder from going.
    const pause = new Int32Array(new SharedArrayBuffer(4));
    for (let waitedMs = 0; waitedMs < 3_000 && servers.some(({ server }) => isRunning(server)); waitedMs += 20)
      Atomics.wait(pause, 0, 0, 20);
    removeFolder(book.directory);
  };
  process.once('exit', end);
  process.once('disconnect', end);
  return () => {
    process.removeListener('exit', end);
    process.removeListener('disconnect', end);
  };
}

function isPid(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function resolved(path: string): string | undefined {
  try {
    return realpathSync(path);
  } catch {
    return undefined;
  }
}
