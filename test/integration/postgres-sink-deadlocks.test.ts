import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest';
import { SinkRetriableError } from '../../src/model/errors.ts';
import { insert } from '../../src/sink/postgres/insert-effect.ts';
import type { PostgresSinkOptions } from '../../src/sink/postgres/options.ts';
import { postgresSink } from '../../src/sink/postgres/postgres-sink.ts';
import type { SinkWriter } from '../../src/sink/port.ts';
import { sinkBatch, sinkContext } from '../support/sink-batch.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';

interface Account {
  readonly id: number;
  readonly code?: string;
}

type Key = string | null;

let database: TestDatabase;
const open: SinkWriter<Key, Account>[] = [];

beforeAll(async () => {
  database = await createTestDatabase(inject('databaseUrl'));
});

afterAll(async () => {
  await database.drop();
});

beforeEach(async () => {
  await database.query('DROP SCHEMA IF EXISTS tidemark CASCADE');
  await database.query('DROP TABLE IF EXISTS accounts');
  await database.query('CREATE TABLE accounts (id bigint PRIMARY KEY, code text UNIQUE, writes integer NOT NULL DEFAULT 1)');
});

afterEach(async () => {
  for (const writer of open.splice(0)) await writer.close();
});

async function openWriter(options: Partial<PostgresSinkOptions<Key, Account>>): Promise<SinkWriter<Key, Account>> {
  const effect = insert<Key, Account>({ table: 'accounts', columns: { id: 'id', code: 'code' }, onConflict: { key: ['id'] } });
  const writer = await postgresSink<Key, Account>({ connection: database.url, effect, ...options }).open(sinkContext());
  open.push(writer);
  return writer;
}

/** As the worker does: the whole transaction again, after a claim. */
async function writeUntilDone(
  writer: SinkWriter<Key, Account>,
  partition: number,
  values: readonly Account[],
  from: bigint,
): Promise<number> {
  const batch = sinkBatch<Account>(
    values.map((value) => ({ value })),
    { partition, from },
  );
  for (let retries = 0; ; retries++) {
    try {
      await writer.write(batch);
      return retries;
    } catch (error) {
      expect(error).toBeInstanceOf(SinkRetriableError);
      expect(await writer.claim({ topic: 'orders', partition }, 0n)).toBe(from);
    }
  }
}

describe('two tasks that upsert the same rows deadlock (kafka-connect-jdbc#385, #1076)', () => {
  it('not with a column mapping: rows are written in the order of their keys', async () => {
    const writers = await Promise.all([openWriter({}), openWriter({})]);
    const accounts = Array.from({ length: 200 }, (_, id) => ({ id }));
    const retries = await Promise.all(
      writers.map(async (writer, partition) => {
        await writer.claim({ topic: 'orders', partition }, 0n);
        let total = 0;
        for (let i = 0; i < 10; i++) {
          const values = partition === 0 ? accounts : accounts.toReversed();
          total += await writeUntilDone(writer, partition, values, BigInt(i * 200));
        }
        return total;
      }),
    );
    expect(retries).toEqual([0, 0]);
    expect(await database.query('SELECT count(*)::int AS count FROM accounts')).toEqual([{ count: 200 }]);
  });

  it('and where a function or a second unique index makes them deadlock (expat-ledger#202), the loser is told to try again, and does', async () => {
    // Each has its own id, and takes the codes in the other's order: the primary key says nothing about the index on code.
    let bothIn: () => void = () => undefined;
    const meeting = new Promise<void>((resolve) => (bothIn = resolve));
    let inside = 0;
    const effect: PostgresSinkOptions<Key, Account>['effect'] = async (tx, records) => {
      for (const [i, { value }] of records.entries()) {
        await tx.query('INSERT INTO accounts (id, code) VALUES ($1, $2) ON CONFLICT (code) DO UPDATE SET writes = accounts.writes + 1', [
          value.id,
          value.code,
        ]);
        if (i === 0 && ++inside <= 2) {
          if (inside === 2) bothIn();
          await meeting;
        }
      }
    };
    const writers = await Promise.all([openWriter({ effect }), openWriter({ effect })]);
    const retries = await Promise.all(
      writers.map(async (writer, partition) => {
        await writer.claim({ topic: 'orders', partition }, 0n);
        const codes = partition === 0 ? ['a', 'b'] : ['b', 'a'];
        return await writeUntilDone(
          writer,
          partition,
          codes.map((code, i) => ({ id: partition * 10 + i, code })),
          0n,
        );
      }),
    );
    expect(retries.toSorted((a, b) => a - b)).toEqual([0, 1]);
    expect(await database.query('SELECT code, writes FROM accounts ORDER BY code')).toEqual([
      { code: 'a', writes: 2 },
      { code: 'b', writes: 2 },
    ]);
    expect(await database.query('SELECT 1 FROM tidemark.dead_letters')).toEqual([]);
  });

  it('keys that many tasks insert in different orders do not: they are sorted', async () => {
    const effect: PostgresSinkOptions<Key, Account>['effect'] = () => undefined;
    const writers = await Promise.all([0, 1, 2].map(async () => await openWriter({ effect, mode: 'key-only' })));
    const keys = Array.from({ length: 300 }, (_, i) => `message-${(i * 7919) % 300}`);
    const outcomes = await Promise.all(
      writers.map(async (writer, partition) => {
        const rotated = [...keys.slice(partition * 100), ...keys.slice(0, partition * 100)];
        return await writer.write(
          sinkBatch<Account>(
            rotated.map((idempotencyKey, id) => ({ value: { id }, idempotencyKey })),
            { partition },
          ),
        );
      }),
    );
    expect(outcomes.map(({ applied }) => applied).toSorted((a, b) => a - b)).toEqual([0, 0, 300]);
  });
});

describe('ON CONFLICT DO NOTHING under REPEATABLE READ fails with 40001 when the row is newer (agensgraph#605, stella#2722)', () => {
  it('not here: the transaction is READ COMMITTED, whatever the default of the database is', async () => {
    await database.query(
      `ALTER DATABASE ${(await database.query<{ name: string }>('SELECT current_database() AS name'))[0]?.name} SET default_transaction_isolation = 'repeatable read'`,
    );
    const levels: unknown[] = [];
    const writer = await openWriter({
      effect: async (tx) => void levels.push((await tx.query('SHOW transaction_isolation')).rows[0]),
    });
    await writer.claim({ topic: 'orders', partition: 0 }, 0n);
    await writer.write(sinkBatch<Account>([{ value: { id: 1 } }]));
    expect(levels).toEqual([{ transaction_isolation: 'read committed' }]);
  });

  it('a serialisation failure of class 40 is tried again as a whole', async () => {
    const writer = await openWriter({
      effect: async (tx) => void (await tx.query(`DO $$ BEGIN RAISE EXCEPTION 'could not serialize' USING ERRCODE = '40001'; END $$`)),
    });
    await writer.claim({ topic: 'orders', partition: 0 }, 0n);
    await expect(writer.write(sinkBatch<Account>([{ value: { id: 1 } }]))).rejects.toThrow(SinkRetriableError);
    expect(await database.query('SELECT next_offset FROM tidemark.fences')).toEqual([{ next_offset: '0' }]);
  });
});
