import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ConfigurationError } from '../../../src/model/errors.ts';
import { InstanceLock } from '../../../src/system/instance-lock.ts';

let stateDirectory: string;
const children: ChildProcess[] = [];

beforeEach(async () => {
  stateDirectory = await mkdtemp(join(tmpdir(), 'tidemark-lock-'));
});

afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  await rm(stateDirectory, { recursive: true });
});

async function acquire(instanceId?: string): Promise<InstanceLock> {
  return InstanceLock.acquire({ stateDirectory, applicationId: 'app', instanceId });
}

const MODULE = pathToFileURL(join(import.meta.dirname, '../../../src/system/instance-lock.ts')).href;

/** A process that takes a lock, tells its instance id and waits. */
async function ownerProcess(instanceId?: string): Promise<{ child: ChildProcess; answer: string }> {
  const options = JSON.stringify({ stateDirectory, applicationId: 'app', instanceId });
  const code = `const { InstanceLock } = await import(${JSON.stringify(MODULE)});
    try { const lock = await InstanceLock.acquire(${options}); console.log('held ' + lock.instanceId); }
    catch (error) { console.log('refused ' + error.message); }
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', code], { stdio: ['ignore', 'pipe', 'inherit'] });
  children.push(child);
  const answer = await new Promise<string>((resolve, reject) => {
    child.stdout.once('data', (data: Buffer) => resolve(data.toString().trim()));
    child.once('exit', () => reject(new Error('the owner ended')));
  });
  return { child, answer };
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) await new Promise((resolve) => child.once('exit', resolve));
}

describe('a slot', () => {
  it('keeps its instance id over a restart', async () => {
    const first = await acquire();
    await first.release();
    const second = await acquire();
    expect(second.instanceId).toBe(first.instanceId);
    await second.release();
  });

  it('is one per process of a machine', async () => {
    const locks = [await acquire(), await acquire(), await acquire()];
    expect(new Set(locks.map((lock) => lock.instanceId)).size).toBe(3);
    await locks[1]!.release();
    expect((await acquire()).instanceId).toBe(locks[1]!.instanceId);
  });

  it('of a killed process goes to its successor', async () => {
    const { child, answer } = await ownerProcess();
    expect(answer).toMatch(/^held /);
    child.kill('SIGKILL');
    await ended(child);
    const lock = await acquire();
    expect(`held ${lock.instanceId}`).toBe(answer);
  });

  it('of a stopped process stays its own', async () => {
    const { child, answer } = await ownerProcess();
    child.kill('SIGSTOP');
    const lock = await acquire();
    expect(`held ${lock.instanceId}`).not.toBe(answer);
  });

  it('whose process number was given to another process is free', async () => {
    const first = await acquire();
    const [file] = (await readdir(first.directory)).filter((name) => name.startsWith('lock-'));
    const path = join(first.directory, file!);
    const owner = JSON.parse(await readFile(path, 'utf8')) as { startedAt: string };
    await writeFile(path, JSON.stringify({ ...owner, startedAt: 'another boot/1' }));
    expect((await acquire()).instanceId).toBe(first.instanceId);
  });

  it('of a dead process is taken by one of many who try at once', async () => {
    const { child } = await ownerProcess('x');
    child.kill('SIGKILL');
    await ended(child);
    for (let round = 0; round < 20; round++) {
      const results = await Promise.allSettled(Array.from({ length: 12 }, async () => acquire('x')));
      const winners = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
      expect(winners).toHaveLength(1);
      expect(await winners[0]!.isHeld()).toBe(true);
      await winners[0]!.release();
    }
    // Numbers go up, files do not pile up.
    expect((await readdir(join(stateDirectory, 'app', 'instance-x'))).length).toBeLessThan(15);
  });
});

describe('a named instance', () => {
  it('that runs already is refused, with the process that has it', async () => {
    await acquire('pod-1');
    const { answer } = await ownerProcess('pod-1');
    expect(answer).toMatch(new RegExp(`^refused option 'instanceId'.*'pod-1' runs already, in process ${process.pid}`));
    await expect(acquire('pod-1')).rejects.toThrow(ConfigurationError);
  });

  it('that ran on another host is refused, with what to do', async () => {
    const first = await acquire('pod-1');
    await first.release();
    const [file] = (await readdir(first.directory)).filter((name) => name.startsWith('lock-'));
    const path = join(first.directory, file!);
    const owner = JSON.parse(await readFile(path, 'utf8')) as object;
    await writeFile(path, JSON.stringify({ ...owner, host: 'elsewhere', released: false }));
    await expect(acquire('pod-1')).rejects.toThrow(/on host 'elsewhere'.*delete the directory/s);
  });
});

it('a directory that cannot be used is an error of the option', async () => {
  await writeFile(join(stateDirectory, 'file'), '');
  await expect(
    InstanceLock.acquire({ stateDirectory: join(stateDirectory, 'file'), applicationId: 'app', instanceId: undefined }),
  ).rejects.toThrow(/option 'stateDirectory'/);
});
