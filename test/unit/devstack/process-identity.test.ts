import { spawn } from 'node:child_process';
import { afterEach, describe, expect, it } from 'vitest';
import { identify, identifySelf, isRunning, signal, stopProcess, type ProcessIdentity } from '../../../src/devstack/process-identity.ts';

const started: ProcessIdentity[] = [];

/** A process that ignores SIGTERM, and has said so. */
async function stubborn(): Promise<ProcessIdentity> {
  const child = spawn(process.execPath, ['-e', "process.on('SIGTERM', () => {}); setInterval(() => {}, 1000); console.log('up')"], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  await new Promise<void>((resolve) => child.stdout.once('data', () => resolve()));
  const identity = identify(child.pid ?? 0);
  if (identity === undefined) throw new Error('the child is gone');
  started.push(identity);
  return identity;
}

afterEach(async () => {
  for (const identity of started.splice(0)) await stopProcess(identity, [{ signal: 'SIGKILL', deadlineMs: 5_000 }]);
});

describe('a process and its identity', () => {
  it('knows this process, and tells it from one that had its number before', () => {
    const me = identifySelf();
    expect(isRunning(me)).toBe(true);
    expect(isRunning({ ...me, startedAt: `${me.startedAt}0` })).toBe(false);
  });

  it('never signals a process that only has the number of the one meant', async () => {
    const other = await stubborn();
    const dead: ProcessIdentity = { pid: other.pid, startedAt: 'long ago' };
    signal(dead, 'SIGKILL');
    await stopProcess(dead, [{ signal: 'SIGKILL', deadlineMs: 1_000 }]);
    expect(isRunning(other)).toBe(true);
  });

  it('takes the next step where a signal is ignored', async () => {
    const process = await stubborn();
    await expect(stopProcess(process, [{ signal: 'SIGTERM', deadlineMs: 200 }])).rejects.toThrow(/does not end/);
    await stopProcess(process, [
      { signal: 'SIGTERM', deadlineMs: 100 },
      { signal: 'SIGKILL', deadlineMs: 5_000 },
    ]);
    expect(isRunning(process)).toBe(false);
  });

  it('finds nothing under a number that nobody has', () => {
    expect(identify(2 ** 22 + 1)).toBeUndefined();
  });
});
