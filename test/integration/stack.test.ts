import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, readdirSync, readFileSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { Kafka, logLevel } from 'kafkajs';
import { Client } from 'pg';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { isRunning, signal, waitUntilGone, type ProcessIdentity } from '../../src/devstack/process-identity.ts';
import { StackBook } from '../../src/devstack/stack-state.ts';
import { type Stack, stackStatus, startStack, stopStack } from '../../src/devstack/stack.ts';
import { IndependentReader } from '../support/independent-reader.ts';
import { startBroker, startDatabase } from '../support/stack.ts';
import { freshDirectory, portsOf, processesOf, removeDirectories } from '../support/stack-directory.ts';

afterEach(removeDirectories);

function kafkaOf(brokers: string): Kafka {
  return new Kafka({ brokers: [brokers], clientId: 'stack-test', logLevel: logLevel.NOTHING });
}

async function query(url: string, sql: string): Promise<unknown[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(sql)).rows;
  } finally {
    await client.end();
  }
}

/** The command as a user runs it, in a process that can be killed. */
function startCommand(directory: string): ChildProcess {
  const command = join(import.meta.dirname, '../../bin/tidemark.js');
  return spawn(process.execPath, [command, 'stack', 'up', '--source', 'local'], { cwd: directory, stdio: 'ignore' });
}

/** A process with a stack of its own, and a channel to this one. */
async function startRun(directory: string): Promise<ChildProcess> {
  const module = JSON.stringify(join(import.meta.dirname, '../../src/devstack/stack.ts'));
  const script = `const { startStack } = await import(${module});
    await startStack({ directory: ${JSON.stringify(directory)}, ephemeral: true, sources: ['local'] });
    process.send('up'); setInterval(() => {}, 1000);`;
  const run = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  await once(run, 'message');
  return run;
}

async function killed(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit');
  child.kill('SIGKILL');
  await exit;
}

/** The broker itself, not what prepares its data. */
async function brokerIn(folder: string): Promise<ProcessIdentity> {
  return await vi.waitUntil(
    () => {
      const found = existsSync(folder) ? new StackBook(folder).get('kafka')?.process : undefined;
      return found !== undefined && commandOf(found.pid).includes('kafka.Kafka') ? found : undefined;
    },
    { timeout: 60_000, interval: 10 },
  );
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1');
  } catch {
    return '';
  }
}

describe.skipIf(process.platform !== 'linux')('a local stack', () => {
  it('does not collide with another one that starts at the same moment, nor see its data', async () => {
    const stacks = await Promise.all(
      [freshDirectory(), freshDirectory()].map(async (directory) => await startStack({ directory, sources: ['local'] })),
    );
    const [one, other] = stacks as [Stack, Stack];
    expect(new Set([...portsOf(one), ...portsOf(other)]).size).toBe(4);
    const admin = kafkaOf(one.kafka.brokers).admin();
    await admin.connect();
    await admin.createTopics({ topics: [{ topic: 'only-here', numPartitions: 1 }] });
    await admin.disconnect();
    const elsewhere = kafkaOf(other.kafka.brokers).admin();
    await elsewhere.connect();
    expect(await elsewhere.listTopics()).not.toContain('only-here');
    await elsewhere.disconnect();
  });

  it('is started once by two that ask at the same moment, and goes on with its data after its servers were killed', async () => {
    const directory = freshDirectory();
    const [first, second] = await Promise.all([
      startStack({ directory, sources: ['local'] }),
      startStack({ directory, sources: ['local'] }),
    ]);
    expect(second.kafka.brokers).toBe(first.kafka.brokers);
    expect(first.kafka.startedHere).toBe(!second.kafka.startedHere);

    const admin = kafkaOf(first.kafka.brokers).admin();
    await admin.connect();
    await admin.createTopics({ topics: [{ topic: 'kept', numPartitions: 1 }] });
    await admin.disconnect();
    await query(first.postgres.url, 'CREATE TABLE kept AS SELECT 7 AS answer');

    const book = new StackBook(join(directory, '.tidemark', 'stack'));
    for (const name of ['kafka', 'postgres'] as const) {
      const server = book.get(name)?.process;
      if (server === undefined) throw new Error(`no process of ${name}`);
      signal(server, 'SIGKILL');
      await waitUntilGone(server, 10_000);
    }
    expect((await stackStatus({ directory })).filter((row) => row.how !== 'given').map((row) => row.running)).toEqual([false, false]);

    const third = await startStack({ directory, sources: ['local'] });
    expect(third.kafka).toMatchObject({ brokers: first.kafka.brokers, startedHere: true });
    expect(await query(third.postgres.url, 'SELECT answer FROM kept')).toEqual([{ answer: 7 }]);
    const again = kafkaOf(third.kafka.brokers).admin();
    await again.connect();
    expect(await again.listTopics()).toContain('kept');
    await again.disconnect();
  });

  it('whose starting process was killed half-way is cleaned up by "down", and does not keep "up" from working', async () => {
    const directory = freshDirectory();
    const folder = join(directory, '.tidemark', 'stack');
    for (const then of ['down', 'up'] as const) {
      const starter = startCommand(directory);
      const kafka = await brokerIn(folder);
      expect(new StackBook(folder).get('kafka')?.address).toBeUndefined();
      await killed(starter);
      expect(isRunning(kafka)).toBe(true);
      if (then === 'down') {
        await stopStack({ directory });
        // What prepared the data was told to end; its own children follow it.
        await vi.waitUntil(() => processesOf(directory).length === 0, { timeout: 5_000 });
      } else {
        const stack = await startStack({ directory, sources: ['local'] });
        expect(isRunning(kafka)).toBe(false);
        expect(await query(stack.postgres.url, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
        await stack.stop();
        // Its Postgres may have been ready before it was killed: then it was found, and is not this stack's to stop.
        await stopStack({ directory });
        expect(processesOf(directory)).toEqual([]);
      }
    }
  });

  it('of a test run that was killed is ended by the next that comes, and one that still runs is not', async () => {
    const directory = freshDirectory();
    const run = await startRun(directory);
    await stopStack({ directory });
    expect(processesOf(directory).length).toBeGreaterThan(2);
    await killed(run);
    expect(processesOf(directory).length).toBeGreaterThan(2);
    await stopStack({ directory });
    expect(processesOf(directory)).toEqual([]);
    expect(readdirSync(join(directory, '.tidemark'))).toEqual([]);
  });

  it('of a test worker ends when the process is gone that it works for', async () => {
    const directory = freshDirectory();
    const run = await startRun(directory);
    try {
      run.disconnect();
      await vi.waitUntil(() => readdirSync(join(directory, '.tidemark')).length === 0, { timeout: 20_000 });
      expect(processesOf(directory)).toEqual([]);
    } finally {
      await killed(run);
    }
  });
});

describe.skipIf(process.getuid?.() !== 0)('a stack of root in a directory that nobody else can reach', () => {
  it('has its database where the database user can reach it, and removes it there', async () => {
    const directory = freshDirectory();
    chmodSync(directory, 0o700);
    const stack = await startStack({ directory, sources: ['local'] });
    const data = realpathSync(join(directory, '.tidemark', 'stack', 'postgres'));
    expect(data.startsWith(directory)).toBe(false);
    expect(await query(stack.postgres.url, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
    await stopStack({ directory, removeData: true });
    expect(existsSync(data)).toBe(false);
  });
});

describe('a server of a test alone', () => {
  it('that is a broker has its records, its port and its open transaction after SIGKILL and restart', async () => {
    const broker = await startBroker();
    const reader = await IndependentReader.open({ brokers: broker.brokers, jars: broker.jars });
    try {
      const admin = kafkaOf(broker.brokers).admin();
      await admin.connect();
      await admin.createTopics({ topics: [{ topic: 't', numPartitions: 1 }] });
      await admin.disconnect();
      const producer = kafkaOf(broker.brokers).producer({ transactionalId: 'x', idempotent: true, maxInFlightRequests: 1 });
      await producer.connect();
      const committed = await producer.transaction();
      await committed.send({ topic: 't', messages: [{ key: 'a\tb', value: 'line\nline' }] });
      await committed.commit();
      const open = await producer.transaction();
      await open.send({ topic: 't', messages: [{ value: 'not committed' }] });

      const before = broker.identity();
      await broker.kill();
      expect(isRunning(before)).toBe(false);
      await broker.restart();

      const { records, partitions } = await reader.read('t');
      expect(records.map((record) => [record.key?.toString(), record.value?.toString()])).toEqual([['a\tb', 'line\nline']]);
      expect(partitions).toEqual([{ partition: 0, logStart: 0n, lastStable: 2n, highWatermark: 3n }]);
      expect(await reader.openTransactions('t')).toMatchObject([{ partition: 0, startOffset: 2n }]);
      await producer.disconnect();
    } finally {
      await reader.close();
      await broker.close();
    }
  });

  it('that is a database refuses connections after SIGKILL, and has its rows after the restart', async () => {
    const database = await startDatabase();
    try {
      await query(database.url, 'CREATE TABLE kept AS SELECT 7 AS answer');
      await database.kill();
      await expect(query(database.url, 'SELECT 1')).rejects.toThrow(/ECONNREFUSED/);
      await database.restart();
      expect(await query(database.url, 'SELECT answer FROM kept')).toEqual([{ answer: 7 }]);
      expect(await query(database.url, 'SHOW fsync')).toEqual([{ fsync: 'on' }]);
    } finally {
      await database.close();
    }
  });

  it('takes TLS, SASL PLAIN and SCRAM clients that know the password, and no others', async () => {
    const user = { username: 'alice', password: 'secret1' };
    const broker = await startBroker({ secured: user });
    try {
      const { sasl, tls, saslOverTls, certificate } = broker.secured ?? fail();
      const ssl = { ca: [certificate] };
      const topicsBy = async (settings: object, brokers: string): Promise<string[]> => {
        const admin = new Kafka({ ...settings, brokers: [brokers], logLevel: logLevel.NOTHING, retry: { retries: 0 } }).admin();
        await admin.connect();
        try {
          return await admin.listTopics();
        } finally {
          await admin.disconnect();
        }
      };
      for (const mechanism of ['plain', 'scram-sha-256'] as const) {
        expect(await topicsBy({ sasl: { mechanism, ...user } }, sasl)).toEqual([]);
        expect(await topicsBy({ ssl, sasl: { mechanism, ...user } }, saslOverTls)).toEqual([]);
        await expect(topicsBy({ sasl: { mechanism, username: 'alice', password: 'wrong' } }, sasl)).rejects.toThrow(/authentication/i);
      }
      expect(await topicsBy({ ssl }, tls)).toEqual([]);
      await expect(topicsBy({ ssl: true }, tls)).rejects.toThrow(/self-signed/);
    } finally {
      await broker.close();
    }
  });
});

function fail(): never {
  throw new Error('the broker has no secured listeners');
}
