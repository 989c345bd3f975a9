import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { identify, identifySelf } from '../../../src/devstack/process-identity.ts';
import { StackBook, withStackLock } from '../../../src/devstack/stack-state.ts';

const base = mkdtempSync(join(tmpdir(), 'tidemark-state-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));

describe('the book of a stack', () => {
  it('is there for the next process, and only for this user', () => {
    const directory = join(base, 'book');
    const book = new StackBook(directory, identifySelf());
    book.set('kafka', { how: 'local', why: 'x', address: '127.0.0.1:1', process: identifySelf() });
    book.setPort('kafka', 1);
    book.set('postgres', { how: 'docker', why: 'y', container: 'c' });
    book.set('postgres', undefined);
    const again = new StackBook(directory);
    expect(again.get('kafka')?.address).toBe('127.0.0.1:1');
    expect(again.get('postgres')).toBeUndefined();
    expect(again.port('kafka')).toBe(1);
    expect(again.owner).toEqual(identifySelf());
    expect(statSync(join(directory, 'state.json')).mode & 0o077).toBe(0);
  });

  it('of another version is not touched', () => {
    writeFileSync(join(base, 'state.json'), '{"version":2}');
    expect(() => new StackBook(base)).toThrow(/another version/);
  });
});

describe('the lock of a stack', () => {
  it('lets one in after the other, and names whom one waits for', async () => {
    const home = join(base, 'lock');
    let inside = 0;
    let most = 0;
    const waited: number[] = [];
    const enter = async (): Promise<void> =>
      await withStackLock(
        home,
        20_000,
        (holder) => waited.push(holder),
        async () => {
          most = Math.max(most, ++inside);
          await new Promise((resolve) => setTimeout(resolve, 50));
          inside--;
        },
      );
    await Promise.all([enter(), enter(), enter()]);
    expect(most).toBe(1);
    expect(waited).toEqual([process.pid, process.pid]);
    expect(readdirSync(home)).toEqual([]);
  });

  it('of a process that has died is taken over', async () => {
    const home = join(base, 'dead');
    const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' });
    const dead = identify(child.pid ?? 0);
    child.kill('SIGKILL');
    await once(child, 'close');
    await withStackLock(
      home,
      1_000,
      () => undefined,
      async () => undefined,
    );
    writeFileSync(join(home, 'stack.lock'), JSON.stringify(dead));
    expect(
      await withStackLock(
        home,
        5_000,
        () => undefined,
        async () => 'in',
      ),
    ).toBe('in');
  });

  it('is given up on at the deadline, and released after a failure', async () => {
    const home = join(base, 'late');
    await withStackLock(
      home,
      1_000,
      () => undefined,
      async () => {
        const second = withStackLock(
          home,
          200,
          () => undefined,
          async () => undefined,
        );
        await expect(second).rejects.toThrow(new RegExp(`Process ${process.pid} has been starting`));
      },
    );
    await expect(
      withStackLock(
        home,
        1_000,
        () => undefined,
        async () => await Promise.reject(new Error('inner')),
      ),
    ).rejects.toThrow('inner');
    expect(readdirSync(home)).toEqual([]);
  });
});
