import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest';
import { SinkFatalError } from '../../src/model/errors.ts';
import { textHeader } from '../../src/model/headers.ts';
import { insert, type InsertOptions } from '../../src/sink/postgres/insert-effect.ts';
import type { PostgresSinkOptions } from '../../src/sink/postgres/options.ts';
import { postgresSink } from '../../src/sink/postgres/postgres-sink.ts';
import type { SinkWriter } from '../../src/sink/port.ts';
import { sinkBatch, sinkContext } from '../support/sink-batch.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';

interface Order {
  readonly id: number | string;
  readonly amount?: unknown;
  readonly note?: string | null;
  readonly doc?: unknown;
}

type Key = string | null;

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase(inject('databaseUrl'));
});

afterAll(async () => {
  await database.drop();
});

beforeEach(async () => {
  await database.query('DROP SCHEMA IF EXISTS tidemark CASCADE');
  await database.query('DROP TABLE IF EXISTS orders');
  await database.query(
    `CREATE TABLE orders (id bigint PRIMARY KEY, amount numeric(10, 2) CHECK (amount >= 0), note varchar(20), doc jsonb)`,
  );
});

const COLUMNS: InsertOptions<Key, Order>['columns'] = { id: 'id', amount: 'amount', note: 'note', doc: 'doc' };
const TO_ORDERS = insert<Key, Order>({ table: 'orders', columns: COLUMNS });

async function withWriter<T>(
  options: Partial<PostgresSinkOptions<Key, Order>>,
  work: (writer: SinkWriter<Key, Order>) => Promise<T>,
): Promise<T> {
  const writer = await postgresSink<Key, Order>({ connection: database.url, effect: TO_ORDERS, ...options }).open(sinkContext());
  try {
    await writer.claim({ topic: 'orders', partition: 0 }, 0n);
    return await work(writer);
  } finally {
    await writer.close();
  }
}

async function ids(): Promise<string[]> {
  return (await database.query<{ id: string }>('SELECT id FROM orders ORDER BY id')).map((row) => row.id);
}

interface DeadLetterRow extends Record<string, unknown> {
  readonly offset: string;
  readonly sqlstate: string | null;
  readonly message: string;
}

async function deadLetters(): Promise<DeadLetterRow[]> {
  return await database.query<DeadLetterRow>('SELECT * FROM tidemark.dead_letters ORDER BY "offset"');
}

describe('one bad row aborts the batch and stops the task (kafka-connect-jdbc#721, #998)', () => {
  it('sets aside the rows at fault and applies all others, whatever their places', async () => {
    const bad = new Map<number, Partial<Order>>([
      [0, { amount: 'a lot' }],
      [7, { note: 'longer than twenty characters' }],
      [250, { amount: -1 }],
      [251, { doc: '{"broken": ' }],
      [499, { id: 'not a number' }],
    ]);
    const values = Array.from({ length: 500 }, (_, i) => ({ value: { id: i, amount: i, note: null, doc: { i }, ...bad.get(i) } }));
    const outcome = await withWriter({}, async (writer) => await writer.write(sinkBatch<Order>(values)));

    expect(outcome).toEqual({ applied: 495, duplicates: 0, deadLettered: 5 });
    expect(await ids()).toEqual(
      values
        .map((_, i) => i)
        .filter((i) => !bad.has(i))
        .map(String),
    );
    expect((await deadLetters()).map(({ offset, sqlstate }) => [offset, sqlstate])).toEqual([
      ['0', '22P02'],
      ['7', '22001'],
      ['250', '23514'],
      ['251', '22P02'],
      ['499', '22P02'],
    ]);
    expect(await database.query('SELECT next_offset FROM tidemark.fences')).toEqual([{ next_offset: '500' }]);
  });

  it('keeps what came in, with its place, headers and reason', async () => {
    const source = { key: Buffer.from('k'), value: Buffer.from([0xff, 0x00, 0x41]) };
    const headers = [textHeader('origin', 'till 4'), { key: 'trace', value: Buffer.from([0, 255]) }, { key: 'empty', value: null }];
    await withWriter({}, async (writer) => {
      await writer.write(sinkBatch<Order>([{ value: { id: 1, amount: -5 }, idempotencyKey: 'order-1', headers, source }], { from: 0n }));
    });
    const [letter] = await deadLetters();
    expect(letter).toMatchObject({
      application: 'shop',
      stage: 'orders-to-postgres',
      topic: 'orders',
      partition: 0,
      offset: '0',
      idempotency_key: 'order-1',
      key: Buffer.from('k'),
      value: Buffer.from([0xff, 0x00, 0x41]),
      headers: [
        { key: 'origin', text: 'till 4' },
        { key: 'trace', base64: 'AP8=' },
        { key: 'empty', text: null },
      ],
      sqlstate: '23514',
      message: expect.stringContaining('orders_amount_check'),
      attempts: 1,
    });
  });

  it('finds the row behind a constraint that is checked at COMMIT only', async () => {
    await database.query('ALTER TABLE orders ADD COLUMN parent bigint REFERENCES orders DEFERRABLE INITIALLY DEFERRED');
    const effect = insert<Key, Order>({ table: 'orders', columns: { id: 'id', parent: 'amount' } });
    const outcome = await withWriter({ effect }, async (writer) => {
      return await writer.write(
        sinkBatch<Order>([{ value: { id: 1 } }, { value: { id: 2, amount: 99 } }, { value: { id: 3, amount: 1 } }]),
      );
    });
    expect(outcome).toEqual({ applied: 2, duplicates: 0, deadLettered: 1 });
    expect(await ids()).toEqual(['1', '3']);
    expect(await deadLetters()).toMatchObject([{ offset: '1', sqlstate: '23503' }]);
  });

  it('sets aside what a trigger of the user refuses', async () => {
    await database.query(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN IF NEW.id = 2 THEN RAISE EXCEPTION 'order % is on the list', NEW.id; END IF; RETURN NEW; END $$`);
    await database.query('CREATE TRIGGER refuse BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION refuse()');
    await withWriter({}, async (writer) => await writer.write(sinkBatch<Order>([1, 2, 3].map((id) => ({ value: { id } })))));
    expect(await ids()).toEqual(['1', '3']);
    expect(await deadLetters()).toMatchObject([
      { offset: '1', sqlstate: 'P0001', message: expect.stringContaining('order 2 is on the list') },
    ]);
    await database.query('DROP FUNCTION refuse CASCADE');
  });

  it('sets aside a record whose mapping throws, and a tombstone that has no fields', async () => {
    const effect = insert<Key, Order | null>({
      table: 'orders',
      columns: {
        id: 'id' as never,
        note: (value) => {
          if (value?.id === 2) throw new RangeError('no note for 2');
          return 'fine';
        },
      },
    });
    const sink = postgresSink<Key, Order | null>({ connection: database.url, effect });
    const writer = await sink.open(sinkContext());
    await writer.claim({ topic: 'orders', partition: 0 }, 0n);
    const outcome = await writer.write(sinkBatch<Order | null>([{ value: { id: 1 } }, { value: { id: 2 } }, { value: null }]));
    await writer.close();
    expect(outcome).toEqual({ applied: 1, duplicates: 0, deadLettered: 2 });
    expect(await deadLetters()).toMatchObject([
      { offset: '1', sqlstate: null, message: 'column "note": no note for 2' },
      { offset: '2', sqlstate: null, message: expect.stringContaining('the value is null') },
    ]);
  });

  it('stops and names the record where dead letters are not wanted, and applies nothing of the batch', async () => {
    await withWriter({ deadLetters: 'fail' }, async (writer) => {
      const write = writer.write(sinkBatch<Order>([{ value: { id: 1 } }, { value: { id: 2, amount: -1 } }]));
      await expect(write).rejects.toThrow(SinkFatalError);
      await expect(write).rejects.toThrow(/orders\/0 at offset 1 is refused: .*23514/);
    });
    expect(await ids()).toEqual([]);
    expect(await database.query('SELECT next_offset FROM tidemark.fences')).toEqual([{ next_offset: '0' }]);
  });
});

describe('a dead letter cannot be sent again', () => {
  it('keeps no idempotency key of a refused record: the same key is applied once the cause is mended', async () => {
    await withWriter({}, async (writer) => {
      await writer.write(sinkBatch<Order>([{ value: { id: 1, amount: -1 }, idempotencyKey: 'order-1' }]));
      expect(await database.query('SELECT 1 FROM tidemark.processed_messages')).toEqual([]);
      const again = await writer.write(sinkBatch<Order>([{ value: { id: 1, amount: 1 }, idempotencyKey: 'order-1' }], { from: 1n }));
      expect(again).toEqual({ applied: 1, duplicates: 0, deadLettered: 0 });
    });
    expect(await ids()).toEqual(['1']);
  });

  it('lets the next record with the same key in the batch take the place of a refused one', async () => {
    const outcome = await withWriter({}, async (writer) => {
      return await writer.write(
        sinkBatch<Order>([
          { value: { id: 1, amount: -1 }, idempotencyKey: 'order-1' },
          { value: { id: 2 }, idempotencyKey: 'order-2' },
          { value: { id: 1, amount: 1 }, idempotencyKey: 'order-1' },
          { value: { id: 1, amount: 2 }, idempotencyKey: 'order-1' },
        ]),
      );
    });
    expect(outcome).toEqual({ applied: 2, duplicates: 1, deadLettered: 1 });
    expect(await database.query('SELECT id, amount FROM orders ORDER BY id')).toEqual([
      { id: '1', amount: '1.00' },
      { id: '2', amount: null },
    ]);
    expect(await database.query('SELECT idempotency_key FROM tidemark.processed_messages ORDER BY 1')).toEqual([
      { idempotency_key: 'order-1' },
      { idempotency_key: 'order-2' },
    ]);
  });

  it('writes one dead letter, not two, when a mode without a fence comes to the record again', async () => {
    await withWriter({ mode: 'key-only' }, async (writer) => {
      const batch = sinkBatch<Order>([{ value: { id: 1, amount: -1 } }, { value: { id: 2 } }]);
      expect(await writer.write(batch)).toEqual({ applied: 1, duplicates: 0, deadLettered: 1 });
      expect(await writer.write(batch)).toEqual({ applied: 0, duplicates: 1, deadLettered: 1 });
    });
    expect(await deadLetters()).toMatchObject([{ offset: '0', attempts: 2 }]);
  });
});

describe('NUL characters are refused by text and jsonb (node-postgres#2080, airbyte#3476)', () => {
  const values = [
    { value: { id: 1, note: 'a\0b' } },
    { value: { id: 2, doc: { deep: ['x\0'] } } },
    { value: { id: 3, doc: { literal: '\\u0000' } } },
    { value: { id: 4, note: 'fine' } },
  ];

  it('sets the record aside by default', async () => {
    const outcome = await withWriter({}, async (writer) => await writer.write(sinkBatch<Order>(values)));
    expect(outcome).toEqual({ applied: 2, duplicates: 0, deadLettered: 2 });
    expect((await deadLetters()).map(({ offset, sqlstate }) => [offset, sqlstate])).toEqual([
      ['0', '22021'],
      ['1', '22P05'],
    ]);
    expect(await database.query('SELECT doc FROM orders WHERE id = 3')).toEqual([{ doc: { literal: '\\u0000' } }]);
  });

  it('leaves the character out with nulCharacters: strip', async () => {
    const outcome = await withWriter({ nulCharacters: 'strip' }, async (writer) => await writer.write(sinkBatch<Order>(values)));
    expect(outcome).toEqual({ applied: 4, duplicates: 0, deadLettered: 0 });
    expect(await database.query('SELECT id, note, doc FROM orders ORDER BY id')).toEqual([
      { id: '1', note: 'ab', doc: null },
      { id: '2', note: null, doc: { deep: ['x'] } },
      { id: '3', note: null, doc: { literal: '\\u0000' } },
      { id: '4', note: 'fine', doc: null },
    ]);
  });

  it('takes idempotency keys that Postgres could neither store nor index, and tells them apart', async () => {
    const keys = ['a\0b', 'a\0c', 'ab', '\ud800', '\ud801', `${'x'.repeat(5_000)}1`, `${'x'.repeat(5_000)}2`];
    await withWriter({}, async (writer) => {
      const batch = keys.map((idempotencyKey, id) => ({ value: { id }, idempotencyKey }));
      expect(await writer.write(sinkBatch<Order>(batch))).toEqual({ applied: keys.length, duplicates: 0, deadLettered: 0 });
      const again = sinkBatch<Order>(batch, { from: BigInt(keys.length) });
      expect(await writer.write(again)).toEqual({ applied: 0, duplicates: keys.length, deadLettered: 0 });
    });
  });
});

describe('a function as effect', () => {
  it('is halved with savepoints until the record at fault is alone, by SQL or by what it throws', async () => {
    const calls: number[] = [];
    const outcome = await withWriter(
      {
        effect: async (tx, records) => {
          calls.push(records.length);
          for (const { value } of records) {
            if (value.id === 5) throw new TypeError('order 5 makes no sense');
            await tx.query('INSERT INTO orders (id, amount) VALUES ($1, $2)', [value.id, value.amount]);
          }
        },
      },
      async (writer) => {
        const values = Array.from({ length: 16 }, (_, id) => ({ value: { id, amount: id === 11 ? -1 : 1 } }));
        return await writer.write(sinkBatch<Order>(values));
      },
    );
    expect(outcome).toEqual({ applied: 14, duplicates: 0, deadLettered: 2 });
    expect(await ids()).toEqual(Array.from({ length: 16 }, (_, i) => String(i)).filter((id) => id !== '5' && id !== '11'));
    expect((await deadLetters()).map(({ offset, sqlstate }) => [offset, sqlstate])).toEqual([
      ['5', null],
      ['11', '23514'],
    ]);
    expect(calls.length).toBeLessThan(20);
  });

  it('cannot hide a failed statement: a caught error still refuses the record, since its transaction is lost', async () => {
    const outcome = await withWriter(
      {
        effect: async (tx, records) => {
          for (const { value } of records) {
            try {
              await tx.query('INSERT INTO orders (id, amount) VALUES ($1, $2)', [value.id, value.amount]);
            } catch {
              // as careless code does
            }
          }
        },
      },
      async (writer) =>
        await writer.write(sinkBatch<Order>([{ value: { id: 1 } }, { value: { id: 2, amount: -1 } }, { value: { id: 3 } }])),
    );
    expect(outcome).toEqual({ applied: 2, duplicates: 0, deadLettered: 1 });
    expect(await ids()).toEqual(['1', '3']);
    expect(await deadLetters()).toMatchObject([{ offset: '1', sqlstate: '23514' }]);
  });

  it('may use savepoints of its own to carry on after a failed statement', async () => {
    const outcome = await withWriter(
      {
        effect: async (tx, records) => {
          for (const { value } of records) {
            await tx.query('SAVEPOINT mine');
            try {
              await tx.query('INSERT INTO orders (id, amount) VALUES ($1, $2)', [value.id, value.amount]);
            } catch {
              await tx.query('ROLLBACK TO SAVEPOINT mine');
              await tx.query('INSERT INTO orders (id, note) VALUES ($1, $2)', [value.id, 'bad amount']);
            }
          }
        },
      },
      async (writer) => await writer.write(sinkBatch<Order>([{ value: { id: 1, amount: 1 } }, { value: { id: 2, amount: -1 } }])),
    );
    expect(outcome).toEqual({ applied: 2, duplicates: 0, deadLettered: 0 });
    expect(await database.query('SELECT id, note FROM orders ORDER BY id')).toEqual([
      { id: '1', note: null },
      { id: '2', note: 'bad amount' },
    ]);
  });

  it.each(['COMMIT', 'rollback', '/* x */ BEGIN', '-- x\nEND', ' ABORT'])('may not end its transaction with %j', async (statement) => {
    await withWriter({ effect: async (tx) => void (await tx.query(statement)) }, async (writer) => {
      const write = writer.write(sinkBatch<Order>([{ value: { id: 1 } }]));
      await expect(write).rejects.toThrow(SinkFatalError);
      await expect(write).rejects.toThrow(/may not end its transaction/);
    });
  });

  it('is waited for, also where it forgets to await a query, and cannot query after it has returned', async () => {
    let late: (() => Promise<unknown>) | undefined;
    await withWriter(
      {
        effect: (tx, records) => {
          for (const { value } of records) void tx.query('INSERT INTO orders (id) VALUES ($1)', [value.id]);
          late = async () => await tx.query('DELETE FROM orders');
        },
      },
      async (writer) => await writer.write(sinkBatch<Order>([{ value: { id: 1 } }, { value: { id: 2 } }])),
    );
    await expect(late?.()).rejects.toThrow(/after the function had returned/);
    expect(await ids()).toEqual(['1', '2']);
  });

  it('refuses nothing while the server is at fault: errors of class 53 and 57 are retried as a whole', async () => {
    await withWriter(
      {
        effect: async (tx) => {
          await tx.query(`DO $$ BEGIN RAISE EXCEPTION 'disk full' USING ERRCODE = '53100'; END $$`);
        },
      },
      async (writer) => {
        await expect(writer.write(sinkBatch<Order>([{ value: { id: 1 } }]))).rejects.toMatchObject({ code: 'SINK_RETRIABLE' });
      },
    );
    expect(await deadLetters()).toEqual([]);
  });

  it('lets the application decide what an error calls for', async () => {
    await withWriter(
      {
        classify: (error) => ((error as { code?: string }).code === '23514' ? 'fatal' : undefined),
      },
      async (writer) => {
        await expect(writer.write(sinkBatch<Order>([{ value: { id: 1, amount: -1 } }]))).rejects.toMatchObject({ code: 'SINK_FATAL' });
      },
    );
    expect(await ids()).toEqual([]);
  });
});

describe('records that never became sink records', () => {
  it('are kept as dead letters in the transaction of their batch', async () => {
    const { records, ...batch } = sinkBatch<Order>([{ value: { id: 1 } }, { value: { id: 2 } }]);
    const outcome = await withWriter({}, async (writer) => {
      return await writer.write({
        ...batch,
        records: records.slice(1),
        refused: [
          {
            context: records[0]!.context,
            source: { key: null, value: Buffer.from('{"broken') },
            idempotencyKey: 'orders/0/0',
            reason: 'not JSON',
          },
        ],
      });
    });
    expect(outcome).toEqual({ applied: 1, duplicates: 0, deadLettered: 1 });
    expect(await ids()).toEqual(['2']);
    expect(await deadLetters()).toMatchObject([{ offset: '0', value: Buffer.from('{"broken'), message: 'not JSON', sqlstate: null }]);
  });
});
