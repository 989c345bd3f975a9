import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { stopProcess, type ProcessIdentity } from '../../../src/devstack/process-identity.ts';
import { run, ServerStartError, spawnServer, waitForLog } from '../../../src/devstack/server-process.ts';

const directory = mkdtempSync(join(tmpdir(), 'tidemark-server-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

async function server(
  script: string,
  logName: string,
): Promise<{ name: string; identity: ProcessIdentity; logFile: string; fromByte: number }> {
  const logFile = join(directory, logName);
  const identity = await spawnServer({ file: process.execPath, args: ['-e', script], logFile }, () => undefined);
  return { name: 'The test server', identity, logFile, fromByte: 0 };
}

describe('run', () => {
  it('shows what a failed command printed', async () => {
    const failed = run(process.execPath, ['-e', "console.error('no such table'); process.exit(3)"], { deadlineMs: 10_000 });
    await expect(failed).rejects.toThrow(/ended with code 3[\s\S]*no such table/);
  });

  it('ends a command that takes too long', async () => {
    await expect(run(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { deadlineMs: 300 })).rejects.toThrow(/longer than 0.3 s/);
  });

  it('says which program is not there', async () => {
    await expect(run('no-such-program', [], { deadlineMs: 1_000 })).rejects.toThrow(/no-such-program could not be run/);
  });
});

describe('starting a server', () => {
  it('reports the process before anything else can fail', async () => {
    let reported: ProcessIdentity | undefined;
    const logFile = join(directory, 'reported.log');
    const identity = await spawnServer({ file: process.execPath, args: ['-e', 'setInterval(() => {}, 1000)'], logFile }, (spawned) => {
      reported = spawned;
    });
    expect(reported).toEqual(identity);
    await stopProcess(identity, [{ signal: 'SIGKILL', deadlineMs: 5_000 }]);
  });

  it('fails at once, with its last lines, when the server ends before it is ready', async () => {
    const failing = await server("console.log('bad setting'); process.exit(1)", 'ends.log');
    await expect(waitForLog(failing, /ready/, 20_000)).rejects.toThrow(/ended while it started[\s\S]*bad setting/);
  });

  it('fails at the deadline when the server never gets ready', async () => {
    const slow = await server("console.log('recovering'); setInterval(() => {}, 1000)", 'slow.log');
    await expect(waitForLog(slow, /ready/, 500)).rejects.toThrow(/not ready after 0.5 s[\s\S]*recovering/);
    await stopProcess(slow.identity, [{ signal: 'SIGKILL', deadlineMs: 5_000 }]);
  });

  it('does not take the log of an earlier start for its own', async () => {
    const first = await server("console.log('ready')", 'again.log');
    await waitForLog(first, /ready/, 10_000);
    const second = await server('process.exit(1)', 'again.log');
    await expect(waitForLog({ ...second, fromByte: 6 }, /ready/, 10_000)).rejects.toThrow(/ended while it started/);
  });

  it('says when the disk is full, and when a port was taken', () => {
    expect(new ServerStartError('x', 'could not write: No space left on device').message).toMatch(/disk is full/);
    expect(new ServerStartError('x', 'java.net.BindException: Address already in use').portTaken).toBe(true);
    expect(new ServerStartError('x', 'Out of memory').portTaken).toBe(false);
  });
});
