import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest';
import { SinkFencedError } from '../../src/model/errors.ts';
import { insert } from '../../src/sink/postgres/insert-effect.ts';
import type { PostgresSinkOptions } from '../../src/sink/postgres/options.ts';
import { postgresSink } from '../../src/sink/postgres/postgres-sink.ts';
import type { SinkContext, SinkWriter } from '../../src/sink/port.ts';
import { sinkBatch, sinkContext } from '../support/sink-batch.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';

interface Entry {
  readonly id: number | null;
  readonly amount: number;
}

type Key = string | null;

const PARTITION = { topic: 'orders', partition: 0 };

let database: TestDatabase;
const open = new Set<SinkWriter<Key, Entry>>();

beforeAll(async () => {
  database = await createTestDatabase(inject('databaseUrl'));
});

afterAll(async () => {
  await database.drop();
});

// A ledger without a unique index: what is applied twice is there twice.
beforeEach(async () => {
  for (const writer of open) await writer.close();
  open.clear();
  await database.query('DROP SCHEMA IF EXISTS tidemark CASCADE');
  await database.query('DROP TABLE IF EXISTS ledger, balances');
  await database.query('CREATE TABLE ledger (id bigint, amount bigint NOT NULL)');
  await database.query('CREATE TABLE balances (id bigint UNIQUE, amount bigint NOT NULL)');
});

const TO_LEDGER = insert<Key, Entry>({ table: 'ledger', columns: { id: 'id', amount: 'amount' } });

async function openWriter(
  options: Partial<PostgresSinkOptions<Key, Entry>> = {},
  context: Partial<SinkContext> = {},
): Promise<SinkWriter<Key, Entry>> {
  const writer = await postgresSink<Key, Entry>({ connection: database.url, effect: TO_LEDGER, ...options }).open(sinkContext(context));
  open.add(writer);
  return writer;
}

function entries(count: number, from = 0): { value: Entry }[] {
  return Array.from({ length: count }, (_, i) => ({ value: { id: from + i, amount: 1 } }));
}

async function ledger(): Promise<string[]> {
  return (await database.query<{ id: string }>('SELECT id FROM ledger ORDER BY id')).map((row) => row.id);
}

describe('a redelivered batch is applied twice', () => {
  it.each(['exactly-once', 'fence-only'] as const)('not in mode %s: the fence has moved on', async (mode) => {
    const writer = await openWriter({ mode });
    expect(await writer.claim(PARTITION, 0n)).toBe(0n);
    const batch = sinkBatch<Entry>(entries(3));
    expect(await writer.write(batch)).toEqual({ applied: 3, duplicates: 0, deadLettered: 0 });
    await expect(writer.write(batch)).rejects.toThrow(SinkFencedError);
    // The truth about where to go on is in the database, whatever Kafka's committed offset says.
    expect(await writer.claim(PARTITION, 0n)).toBe(3n);
    expect(await ledger()).toEqual(['0', '1', '2']);
  });

  it('not in mode key-only: the keys are there', async () => {
    const writer = await openWriter({ mode: 'key-only' });
    expect(await writer.claim(PARTITION, 7n)).toBe(7n);
    const batch = sinkBatch<Entry>(entries(3));
    await writer.write(batch);
    expect(await writer.write(batch)).toEqual({ applied: 0, duplicates: 3, deadLettered: 0 });
    expect(await ledger()).toEqual(['0', '1', '2']);
  });

  it.each(['at-least-once', 'at-most-once'] as const)('but it is in mode %s, which keeps neither', async (mode) => {
    const writer = await openWriter({ mode });
    const batch = sinkBatch<Entry>(entries(2));
    await writer.write(batch);
    expect(await writer.write(batch)).toEqual({ applied: 2, duplicates: 0, deadLettered: 0 });
    expect(await ledger()).toEqual(['0', '0', '1', '1']);
    expect(await database.query('SELECT 1 FROM tidemark.fences UNION ALL SELECT 1 FROM tidemark.processed_messages')).toEqual([]);
  });
});

describe('a message that its producer sent twice is applied twice', () => {
  it.each(['exactly-once', 'key-only'] as const)('not in mode %s, at another offset or in another partition', async (mode) => {
    const writer = await openWriter({ mode });
    await writer.claim(PARTITION, 0n);
    await writer.claim({ topic: 'orders', partition: 1 }, 0n);
    const keyed = entries(4).map((entry) => ({ ...entry, idempotencyKey: `order-${entry.value.id}` }));
    await writer.write(sinkBatch<Entry>(keyed.slice(0, 3)));
    expect(await writer.write(sinkBatch<Entry>(keyed.slice(1, 4), { from: 3n }))).toEqual({ applied: 1, duplicates: 2, deadLettered: 0 });
    expect(await writer.write(sinkBatch<Entry>(keyed, { partition: 1 }))).toEqual({ applied: 0, duplicates: 4, deadLettered: 0 });
    expect(await ledger()).toEqual(['0', '1', '2', '3']);
  });

  it('but it is in mode fence-only, as its guarantee says', async () => {
    const writer = await openWriter({ mode: 'fence-only' });
    await writer.claim(PARTITION, 0n);
    const [entry] = entries(1);
    await writer.write(
      sinkBatch<Entry>([
        { ...entry!, idempotencyKey: 'order-0' },
        { ...entry!, idempotencyKey: 'order-0' },
      ]),
    );
    expect(await ledger()).toEqual(['0', '0']);
  });
});

describe('the same key twice in one batch', () => {
  it('is applied once, the first by offset', async () => {
    const writer = await openWriter();
    await writer.claim(PARTITION, 0n);
    const outcome = await writer.write(
      sinkBatch<Entry>([
        { value: { id: 1, amount: 10 }, idempotencyKey: 'b' },
        { value: { id: 2, amount: 20 }, idempotencyKey: 'a' },
        { value: { id: 3, amount: 30 }, idempotencyKey: 'b' },
      ]),
    );
    expect(outcome).toEqual({ applied: 2, duplicates: 1, deadLettered: 0 });
    expect(await ledger()).toEqual(['1', '2']);
  });

  it('as an upsert key is no cardinality violation: the last by offset wins (21000: ponder#1918, config-db#893)', async () => {
    const writer = await openWriter({
      effect: insert<Key, Entry>({ table: 'balances', columns: { id: 'id', amount: 'amount' }, onConflict: { key: ['id'] } }),
    });
    await writer.claim(PARTITION, 0n);
    await writer.write(sinkBatch<Entry>([1, 2, 3].map((amount) => ({ value: { id: 1, amount } }))));
    await writer.write(
      sinkBatch<Entry>(
        [5, 4].map((amount) => ({ value: { id: 1, amount } })),
        { from: 3n },
      ),
    );
    expect(await database.query('SELECT * FROM balances')).toEqual([{ id: '1', amount: '4' }]);
  });

  it('is told apart as the database does: two texts which one index takes for equal are split, not refused', async () => {
    await database.query('DROP TABLE balances');
    await database.query('CREATE TABLE balances (id numeric UNIQUE, amount bigint NOT NULL)');
    const writer = await openWriter({
      effect: insert<Key, Entry>({
        table: 'balances',
        columns: { id: (value) => value.id, amount: 'amount' },
        onConflict: { key: ['id'] },
      }),
    });
    await writer.claim(PARTITION, 0n);
    const outcome = await writer.write(
      sinkBatch<Entry>([
        { value: { id: '1.0' as never, amount: 1 } },
        { value: { id: '2' as never, amount: 2 } },
        { value: { id: '1.00' as never, amount: 3 } },
      ]),
    );
    expect(outcome).toEqual({ applied: 3, duplicates: 0, deadLettered: 0 });
    expect(await database.query('SELECT id::int, amount FROM balances ORDER BY id')).toEqual([
      { id: 1, amount: '3' },
      { id: 2, amount: '2' },
    ]);
  });

  it('with onConflict nothing keeps the first, also between batches', async () => {
    const writer = await openWriter({
      effect: insert<Key, Entry>({ table: 'balances', columns: { id: 'id', amount: 'amount' }, onConflict: 'nothing' }),
    });
    await writer.claim(PARTITION, 0n);
    await writer.write(sinkBatch<Entry>([1, 2].map((amount) => ({ value: { id: 1, amount } }))));
    await writer.write(sinkBatch<Entry>([{ value: { id: 1, amount: 3 } }], { from: 2n }));
    expect(await database.query('SELECT * FROM balances')).toEqual([{ id: '1', amount: '1' }]);
  });

  it('with NULL as upsert key is no conflict: each row is kept (worldmonitor#1939)', async () => {
    const writer = await openWriter({
      effect: insert<Key, Entry>({ table: 'balances', columns: { id: 'id', amount: 'amount' }, onConflict: { key: ['id'] } }),
    });
    await writer.claim(PARTITION, 0n);
    await writer.write(sinkBatch<Entry>([1, 2].map((amount) => ({ value: { id: null, amount } }))));
    expect(await database.query('SELECT amount FROM balances ORDER BY 1')).toEqual([{ amount: '1' }, { amount: '2' }]);
  });
});

describe('a key that is NULL never conflicts (worldmonitor#1939)', () => {
  it('cannot be: the table refuses it, and records without a key are known by their coordinates', async () => {
    const writer = await openWriter({ mode: 'key-only' });
    await writer.write(sinkBatch<Entry>([{ value: { id: 1, amount: 1 }, key: null }]));
    expect(await database.query('SELECT consumer, idempotency_key FROM tidemark.processed_messages')).toEqual([
      { consumer: 'shop/orders-to-postgres', idempotency_key: 'orders/0/0' },
    ]);
    await expect(
      database.query('INSERT INTO tidemark.processed_messages (consumer, idempotency_key) VALUES ($1, NULL)', ['x']),
    ).rejects.toThrow(/null value/);
  });
});

describe('the same id for another consumer is taken for a duplicate (svix#2502, eShopOnContainers#2087)', () => {
  it('not here: keys and fences belong to one stage of one application', async () => {
    const batch = sinkBatch<Entry>([{ value: { id: 1, amount: 1 }, idempotencyKey: 'order-1' }]);
    for (const context of [{}, { stage: 'orders-to-audit' }, { applicationId: 'billing' }]) {
      const writer = await openWriter({}, context);
      expect(await writer.claim(PARTITION, 0n)).toBe(0n);
      expect(await writer.write(batch)).toEqual({ applied: 1, duplicates: 0, deadLettered: 0 });
    }
    expect(await ledger()).toEqual(['1', '1', '1']);
  });
});

describe('a zombie writes after its successor has taken over', () => {
  it('is fenced by the epoch, even where the position is the one that it expects', async () => {
    const zombie = await openWriter();
    const successor = await openWriter();
    await zombie.claim(PARTITION, 0n);
    await zombie.write(sinkBatch<Entry>(entries(2)));
    expect(await successor.claim(PARTITION, 0n)).toBe(2n);
    const next = sinkBatch<Entry>(entries(2, 2), { from: 2n });
    await expect(zombie.write(next)).rejects.toThrow(/epoch 2/);
    await successor.write(next);
    await expect(zombie.write(sinkBatch<Entry>(entries(2, 4), { from: 4n }))).rejects.toThrow(SinkFencedError);
    expect(await ledger()).toEqual(['0', '1', '2', '3']);
  });

  it('cannot be overtaken in the middle of its transaction: the claim waits for the end of it, and counts it', async () => {
    let entered: () => void = () => undefined;
    let goOn: () => void = () => undefined;
    const inside = new Promise<void>((resolve) => (entered = resolve));
    const gate = new Promise<void>((resolve) => (goOn = resolve));
    const zombie = await openWriter({
      effect: async (tx, records) => {
        for (const { value } of records) await tx.query('INSERT INTO ledger VALUES ($1, $2)', [value.id, value.amount]);
        entered();
        await gate;
      },
    });
    await zombie.claim(PARTITION, 0n);
    const write = zombie.write(sinkBatch<Entry>(entries(2)));
    await inside;

    const successor = await openWriter();
    let claimed: bigint | undefined;
    const claim = successor.claim(PARTITION, 0n).then((position) => (claimed = position));
    await expect.poll(async () => await blockedSessions(), { timeout: 10_000 }).toBe(1);
    expect(claimed).toBeUndefined();
    goOn();
    await write;
    expect(await claim).toBe(2n);
    expect(await ledger()).toEqual(['0', '1']);
  });

  it('two owners that write the same partition at once apply each record once', async () => {
    const owners = await Promise.all([openWriter(), openWriter()]);
    const total = 200n;
    let fenced = 0;
    const drive = async (writer: SinkWriter<Key, Entry>): Promise<void> => {
      let position = await writer.claim(PARTITION, 0n);
      while (position < total) {
        const batch = sinkBatch<Entry>(entries(5, Number(position)), { from: position });
        try {
          await writer.write(batch);
          position = batch.nextOffset;
        } catch (error) {
          if (!(error instanceof SinkFencedError)) throw error;
          fenced++;
          position = await writer.claim(PARTITION, 0n);
        }
      }
    };
    await Promise.all(owners.map(drive));
    expect(await ledger()).toEqual(Array.from({ length: Number(total) }, (_, i) => String(i)));
    expect(fenced).toBeGreaterThan(0);
  });
});

async function blockedSessions(): Promise<number> {
  const rows = await database.query(
    `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0`,
  );
  return rows.length;
}

describe('two writers with the same key at once run its effect twice (grape-idempotency#10)', () => {
  it('not here: the second waits for the first, and then finds its key', async () => {
    let entered: () => void = () => undefined;
    let goOn: () => void = () => undefined;
    const inside = new Promise<void>((resolve) => (entered = resolve));
    const gate = new Promise<void>((resolve) => (goOn = resolve));
    const effect: PostgresSinkOptions<Key, Entry>['effect'] = async (tx, records) => {
      for (const { value } of records) await tx.query('INSERT INTO ledger VALUES ($1, $2)', [value.id, value.amount]);
      entered();
      await gate;
    };
    const first = await openWriter({ mode: 'key-only', effect });
    const second = await openWriter({ mode: 'key-only', effect });
    const batch = [{ value: { id: 1, amount: 1 }, idempotencyKey: 'order-1' }];
    const winner = first.write(sinkBatch<Entry>(batch));
    await inside;
    const loser = second.write(sinkBatch<Entry>(batch, { partition: 1 }));
    await expect.poll(async () => await blockedSessions(), { timeout: 10_000 }).toBe(1);
    goOn();
    expect(await winner).toMatchObject({ applied: 1, duplicates: 0 });
    expect(await loser).toMatchObject({ applied: 0, duplicates: 1 });
    expect(await ledger()).toEqual(['1']);
  });
});

describe('a result is lost for the duplicate', () => {
  it('not here: it stands beside the key, and duplicates are told of it in the same transaction', async () => {
    const told: unknown[] = [];
    const writer = await openWriter({
      effect: async (tx, records) => {
        const results: unknown[] = [];
        for (const { value } of records) {
          await tx.query('INSERT INTO ledger VALUES ($1, $2)', [value.id, value.amount]);
          results.push(value.id === 2 ? undefined : { receipt: `R-${value.id}` });
        }
        return results;
      },
      onDuplicates: async (tx, duplicates) => {
        for (const { record, result } of duplicates) told.push([record.value.id, result]);
        await tx.query('INSERT INTO ledger VALUES ($1, 0)', [1000 + duplicates.length]);
      },
    });
    await writer.claim(PARTITION, 0n);
    const keyed = (ids: number[]) => ids.map((id) => ({ value: { id, amount: 1 }, idempotencyKey: `order-${id}` }));
    await writer.write(sinkBatch<Entry>(keyed([1, 2, 3])));
    expect(told).toEqual([]);
    expect(await writer.write(sinkBatch<Entry>(keyed([1, 4, 2, 4]), { from: 3n }))).toEqual({ applied: 1, duplicates: 3, deadLettered: 0 });
    expect(told).toEqual([
      [1, { receipt: 'R-1' }],
      [4, { receipt: 'R-4' }],
      [2, null],
    ]);
    expect(await ledger()).toEqual(['1', '2', '3', '4', '1003']);
  });

  it('nor mixed up: an effect function must give one result per record', async () => {
    const writer = await openWriter({ effect: () => ['only one'] });
    await writer.claim(PARTITION, 0n);
    await expect(writer.write(sinkBatch<Entry>(entries(2)))).rejects.toThrow(/was given 2 records and returned 1 results/);
  });
});
