import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { insert } from '../../src/sink/postgres/insert-effect.ts';
import { postgresSink } from '../../src/sink/postgres/postgres-sink.ts';
import { sinkBatch, sinkContext } from '../support/sink-batch.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase(inject('databaseUrl'));
  await database.query('CREATE TABLE wide (a bigint, b text, c text, d text, e boolean)');
});

afterAll(async () => {
  await database.drop();
});

interface Wide {
  readonly a: number;
  readonly b: string;
}

describe('more than 65,535 parameters wrap silently in the protocol (node-postgres#1091, #1463, #2292)', () => {
  it('cannot be: a statement has one parameter per column, so a batch of 100,000 rows of five columns is whole', async () => {
    const sink = postgresSink<string | null, Wide>({
      connection: database.url,
      effect: insert<string | null, Wide>({
        table: 'wide',
        columns: { a: 'a', b: 'b', c: (value) => `c${value.a}`, d: () => null, e: (value) => value.a % 2 === 0 },
        rowsPerStatement: 40_000,
      }),
    });
    const writer = await sink.open(sinkContext());
    await writer.claim({ topic: 'orders', partition: 0 }, 0n);
    const count = 100_000;
    const batch = sinkBatch<Wide>(Array.from({ length: count }, (_, a) => ({ value: { a, b: 'x'.repeat(a % 20) } })));
    expect(await writer.write(batch)).toEqual({ applied: count, duplicates: 0, deadLettered: 0 });
    await writer.close();
    expect(
      await database.query(
        'SELECT count(*)::int AS rows, count(DISTINCT a)::int AS ids, sum(length(b))::int AS b, max(c) AS c, count(d)::int AS d FROM wide',
      ),
    ).toEqual([{ rows: count, ids: count, b: (count / 20) * 190, c: 'c99999', d: 0 }]);
    expect(await database.query('SELECT count(*)::int AS keys FROM tidemark.processed_messages')).toEqual([{ keys: count }]);
  });
});
