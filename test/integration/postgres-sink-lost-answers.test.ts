import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest';
import { SinkRetriableError } from '../../src/model/errors.ts';
import { insert } from '../../src/sink/postgres/insert-effect.ts';
import type { PostgresSinkOptions } from '../../src/sink/postgres/options.ts';
import { postgresSink } from '../../src/sink/postgres/postgres-sink.ts';
import type { SinkContext, SinkMode, SinkWriter } from '../../src/sink/port.ts';
import { FaultProxy } from '../support/fault-proxy.ts';
import { recordingLog, sinkBatch, sinkContext } from '../support/sink-batch.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';

interface Entry {
  readonly id: number;
}

type Key = string | null;

const PARTITION = { topic: 'orders', partition: 0 };

let database: TestDatabase;
let proxy: FaultProxy;
let proxied: string;
const closings: (() => Promise<void>)[] = [];

beforeAll(async () => {
  database = await createTestDatabase(inject('databaseUrl'));
  const url = new URL(database.url);
  proxy = await FaultProxy.postgres(url.hostname, Number(url.port === '' ? 5432 : url.port));
  url.hostname = '127.0.0.1';
  url.port = String(proxy.port);
  proxied = url.toString();
});

afterAll(async () => {
  await proxy.close();
  await database.drop();
});

beforeEach(async () => {
  await database.query('DROP SCHEMA IF EXISTS tidemark CASCADE');
  await database.query('DROP TABLE IF EXISTS ledger');
  await database.query('CREATE TABLE ledger (id bigint NOT NULL)');
});

afterEach(async () => {
  proxy.clearRules();
  proxy.resume();
  for (const close of closings.splice(0)) await close();
});

async function openWriter(
  options: Partial<PostgresSinkOptions<Key, Entry>> = {},
  context: Partial<SinkContext> = {},
): Promise<SinkWriter<Key, Entry>> {
  const effect = insert<Key, Entry>({ table: 'ledger', columns: { id: 'id' } });
  const sink = postgresSink<Key, Entry>({ connection: proxied, effect, maxConnections: 2, ...options });
  const writer = await sink.open(sinkContext(context));
  closings.push(async () => await writer.close(2_000));
  return writer;
}

function batch(from: number, to: number) {
  return sinkBatch<Entry>(
    Array.from({ length: to - from }, (_, i) => ({ value: { id: from + i } })),
    { from: BigInt(from) },
  );
}

async function ledger(): Promise<number[]> {
  return (await database.query<{ id: string }>('SELECT id FROM ledger ORDER BY id')).map((row) => Number(row.id));
}

/** As the worker does: after an error that may have been a success, the claim tells whether it was. */
async function writeOnce(writer: SinkWriter<Key, Entry>, from: number, to: number): Promise<'written' | 'was applied'> {
  try {
    await writer.write(batch(from, to));
    return 'written';
  } catch (error) {
    expect(error).toBeInstanceOf(SinkRetriableError);
  }
  const position = await writer.claim(PARTITION, BigInt(from));
  if (position === BigInt(to)) return 'was applied';
  expect(position).toBe(BigInt(from));
  await writer.write(batch(from, to));
  return 'written';
}

// With one statement after the other, and with all of a transaction on the wire at once.
const CONNECTIONS = [
  ['pipelined', (): PostgresSinkOptions<Key, Entry>['connection'] => proxied],
  ['one by one', (): PostgresSinkOptions<Key, Entry>['connection'] => ({ connectionString: proxied, pipeline: false })],
] as const;

describe('the answer to COMMIT is lost (neo4j-java#593, pgjdbc#2197), and repeating it on a new connection would succeed with nothing in it (activerecord-jdbc#1216)', () => {
  describe.each(CONNECTIONS)('statements %s', (_name, connection) => {
    it('after it took effect: the fence says so, and the batch is not applied again', async () => {
      const writer = await openWriter({ connection: connection() });
      await writer.claim(PARTITION, 0n);
      const rule = proxy.addRule({ query: /^commit/i, action: 'closeAfter' });
      expect(await writeOnce(writer, 0, 3)).toBe('was applied');
      expect(rule.fired).toBe(1);
      expect(await writeOnce(writer, 3, 5)).toBe('written');
      expect(await ledger()).toEqual([0, 1, 2, 3, 4]);
    });

    it('before it reached the server: the fence says so, and the batch is applied then', async () => {
      const writer = await openWriter({ connection: connection() });
      await writer.claim(PARTITION, 0n);
      const rule = proxy.addRule({ query: /^commit/i, action: 'closeBefore' });
      expect(await writeOnce(writer, 0, 3)).toBe('written');
      expect(rule.fired).toBe(1);
      expect(await ledger()).toEqual([0, 1, 2]);
    });

    it('and the server may still be working on it: the claim waits for the end of it', async () => {
      const writer = await openWriter({ connection: connection() });
      await writer.claim(PARTITION, 0n);
      proxy.addRule({ query: /^commit/i, action: 'closeOnForward' });
      await writeOnce(writer, 0, 3);
      expect(await ledger()).toEqual([0, 1, 2]);
      expect(await writer.claim(PARTITION, 0n)).toBe(3n);
    });
  });

  it('in mode key-only the keys tell: written again, it is a duplicate or it is applied, never both', async () => {
    for (const action of ['closeAfter', 'closeBefore'] as const) {
      await database.query('TRUNCATE ledger');
      const writer = await openWriter({ mode: 'key-only' }, { stage: action });
      const rule = proxy.addRule({ query: /^commit/i, action });
      await expect(writer.write(batch(0, 3))).rejects.toThrow(SinkRetriableError);
      expect(rule.fired).toBe(1);
      expect(await writer.claim(PARTITION, 0n)).toBe(0n);
      const again = await writer.write(batch(0, 3));
      expect(again).toMatchObject(action === 'closeAfter' ? { applied: 0, duplicates: 3 } : { applied: 3, duplicates: 0 });
      expect(await ledger()).toEqual([0, 1, 2]);
    }
  });

  it('in mode at-least-once it is applied again; in mode at-most-once it is not tried again, and said so', async () => {
    const outcomes = new Map<SinkMode, number[]>();
    const { lines, log } = recordingLog();
    for (const mode of ['at-least-once', 'at-most-once'] as const) {
      await database.query('TRUNCATE ledger');
      const writer = await openWriter({ mode, deadLetters: 'fail' }, { log });
      proxy.addRule({ query: /^commit/i, action: 'closeAfter' });
      try {
        await writer.write(batch(0, 2));
      } catch (error) {
        expect(error).toBeInstanceOf(SinkRetriableError);
        await writer.write(batch(0, 2));
      }
      outcomes.set(mode, await ledger());
    }
    expect(outcomes).toEqual(
      new Map([
        ['at-least-once', [0, 0, 1, 1]],
        ['at-most-once', [0, 1]],
      ]),
    );
    expect(lines.filter((line) => line.level === 'warn').map((line) => line.message)).toContainEqual(
      expect.stringContaining('the answer to COMMIT was lost'),
    );
  });
});

describe('an answer never comes', () => {
  it('has a deadline, also where the connection stays open; the connection is not used again (node-postgres#1454)', async () => {
    const writer = await openWriter({
      connection: { connectionString: proxied, pipeline: false },
      statementTimeoutMs: 500,
      maxConnections: 1,
    });
    await writer.claim(PARTITION, 0n);
    const rule = proxy.addRule({ query: /^insert into "ledger"/i, action: 'dropResponse' });
    const before = performance.now();
    await expect(writer.write(batch(0, 3))).rejects.toThrow(/no answer to INSERT INTO "ledger"/);
    expect(rule.fired).toBe(1);
    // The statement's time, the grace for its answer, and no more: no ROLLBACK is waited for.
    expect(performance.now() - before).toBeLessThan(6_000);
    expect(await writer.claim(PARTITION, 0n)).toBe(0n);
    await writer.write(batch(0, 3));
    expect(await ledger()).toEqual([0, 1, 2]);
  });

  it('to a connect has one as well', async () => {
    const writer = await openWriter({ connectTimeoutMs: 300 });
    await writer.claim(PARTITION, 0n);
    proxy.dropConnections();
    proxy.pause();
    await expect(writer.claim(PARTITION, 0n)).rejects.toThrow(SinkRetriableError);
    proxy.resume();
    await expect.poll(async () => await writer.claim(PARTITION, 0n).catch(() => undefined), { timeout: 10_000 }).toBe(0n);
  });
});

describe('a connection is lost while it is idle, or in the middle of a transaction (node-postgres#2112, #821, #2852)', () => {
  it('does not end the process, and the next write gets a new one', async () => {
    const { lines, log } = recordingLog();
    const writer = await openWriter({}, { log });
    await writer.claim(PARTITION, 0n);
    await writer.write(batch(0, 1));
    proxy.dropConnections();
    await expect.poll(() => lines.some((line) => line.message.includes('idle connection'))).toBe(true);
    await writer.write(batch(1, 2));
    proxy.addRule({ query: /^insert into "ledger"/i, action: 'closeBefore' });
    expect(await writeOnce(writer, 2, 3)).toBe('written');
    expect(await ledger()).toEqual([0, 1, 2]);
  });

  it('by the server, with an error of class 57', async () => {
    const effect: PostgresSinkOptions<Key, Entry>['effect'] = async (tx, records) => {
      for (const { value } of records) await tx.query('INSERT INTO ledger VALUES ($1)', [value.id]);
      const { rows } = await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
      if (records.length > 1) await database.query('SELECT pg_terminate_backend($1)', [rows[0]?.pid]);
      await tx.query('SELECT 1');
    };
    const writer = await openWriter({ effect });
    await writer.claim(PARTITION, 0n);
    await expect(writer.write(batch(0, 2))).rejects.toThrow(SinkRetriableError);
    expect(await writer.claim(PARTITION, 0n)).toBe(0n);
    await writer.write(batch(0, 1));
    expect(await ledger()).toEqual([0]);
  });

  it('while the server refuses connections, every attempt says that it may be tried again', async () => {
    const writer = await openWriter();
    await writer.claim(PARTITION, 0n);
    proxy.refuse();
    for (let i = 0; i < 3; i++) await expect(writer.write(batch(0, 1))).rejects.toThrow(SinkRetriableError);
    proxy.resume();
    await expect.poll(async () => await writer.claim(PARTITION, 0n).catch(() => undefined), { timeout: 10_000 }).toBe(0n);
    await writer.write(batch(0, 1));
    expect(await ledger()).toEqual([0]);
  });
});

describe('a client goes back to the pool in an aborted transaction and fails its next user with 25P02 (node-postgres#154)', () => {
  it('not here: the pool of the user works on after errors of every kind', async () => {
    const pool = new pg.Pool({ connectionString: proxied, max: 1, connectionTimeoutMillis: 5_000 });
    pool.on('error', () => undefined);
    closings.push(async () => await pool.end());
    let mode: 'sql' | 'throw' | 'break' = 'sql';
    const writer = await openWriter({
      connection: pool,
      deadLetters: 'fail',
      effect: async (tx) => {
        if (mode === 'throw') throw new Error('as it happens');
        await tx.query(mode === 'sql' ? 'SELECT 1 / 0' : 'SELECT pg_terminate_backend(pg_backend_pid())');
      },
    });
    await writer.claim(PARTITION, 0n);
    for (mode of ['sql', 'throw', 'break'] as const) {
      await expect(writer.write(batch(0, 1))).rejects.toThrow(/Postgres sink/);
      expect((await pool.query('SELECT txid_current_if_assigned() AS txid, now() = statement_timestamp() AS outside')).rows).toEqual([
        { txid: null, outside: true },
      ]);
    }
    expect(pool.totalCount).toBeLessThanOrEqual(1);
    await writer.close();
    // Closing the sink has not closed it.
    expect((await pool.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  });
});

describe('a process is stopped in the middle of its transaction, and its successor waits for the fence for ever', () => {
  it('not longer than the server lets a transaction stand idle', async () => {
    let stopped: () => void = () => undefined;
    const inside = new Promise<void>((resolve) => (stopped = resolve));
    const zombie = await openWriter({
      idleInTransactionTimeoutMs: 700,
      effect: async () => {
        stopped();
        await new Promise<void>((resolve) => closings.push(async () => resolve()));
      },
    });
    await zombie.claim(PARTITION, 0n);
    const write = zombie.write(batch(0, 1));
    write.catch(() => undefined);
    await inside;
    const successor = await openWriter({ lockTimeoutMs: 5_000 });
    expect(await successor.claim(PARTITION, 0n)).toBe(0n);
    await successor.write(batch(0, 2));
    expect(await ledger()).toEqual([0, 1]);
  });

  it('a lock that is held for longer than lockTimeoutMs is no fatal error', async () => {
    const writer = await openWriter({ lockTimeoutMs: 200 });
    await writer.claim(PARTITION, 0n);
    const holder = await database.pool.connect();
    try {
      await holder.query('BEGIN; SELECT 1 FROM tidemark.fences FOR UPDATE');
      await expect(writer.write(batch(0, 1))).rejects.toThrow(SinkRetriableError);
      await expect(writer.claim(PARTITION, 0n)).rejects.toThrow(SinkRetriableError);
      await holder.query('ROLLBACK');
    } finally {
      holder.release();
    }
    await writer.write(batch(0, 1));
  });
});

describe('closing', () => {
  it('cuts off what is still running at its deadline', async () => {
    const writer = await openWriter({ effect: async (tx) => void (await tx.query('SELECT pg_sleep(20)')) });
    await writer.claim(PARTITION, 0n);
    const write = writer.write(batch(0, 1));
    const settled = write.then(
      () => 'written',
      (error: unknown) => error,
    );
    await expect
      .poll(
        async () =>
          (await database.query(`SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(20)%' AND pid <> pg_backend_pid()`)).length,
      )
      .toBe(1);
    const before = performance.now();
    await writer.close(300);
    expect(performance.now() - before).toBeLessThan(2_000);
    expect(await settled).toBeInstanceOf(SinkRetriableError);
    await expect(writer.claim(PARTITION, 0n)).rejects.toThrow(SinkRetriableError);
  });

  it('leaves no connection behind', async () => {
    const writer = await openWriter({}, { applicationId: 'leaves-nothing' });
    await writer.claim(PARTITION, 0n);
    await writer.close();
    await expect
      .poll(async () => (await database.query(`SELECT 1 FROM pg_stat_activity WHERE application_name = 'tidemark leaves-nothing'`)).length)
      .toBe(0);
  });
});
