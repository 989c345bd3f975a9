/**
 * The statements of the sink by hand with node-postgres, without Kafka: the rows come from memory. Shows what the database takes at this batch
 * size, which no sink can exceed by much: per batch of 500 one transaction with a position, idempotency keys, and rows for new keys.
 */
import { parseArgs } from 'node:util';
import pg from 'pg';
import type { Purchase } from './purchase.ts';

const { values: options } = parseArgs({
  options: {
    database: { type: 'string' },
    schema: { type: 'string' },
    records: { type: 'string' },
    partitions: { type: 'string', default: '4' },
  },
});
const { database, schema, records } = options;
if (database === undefined || schema === undefined || records === undefined) {
  throw new Error('usage: plain-postgres.ts --database URL --schema NAME --records N [--partitions 4]');
}
const BATCH = 500;
const partitions = Number(options.partitions);
const perPartition = Number(records) / partitions;

const pool = new pg.Pool({ connectionString: database, max: partitions });
await pool.query(`CREATE TABLE "${schema}".fences (partition int PRIMARY KEY, next_offset bigint NOT NULL)`);
await pool.query(
  `CREATE TABLE "${schema}".processed_messages (consumer text, idempotency_key text, PRIMARY KEY (consumer, idempotency_key))`,
);

function purchase(id: number): Purchase {
  const pad = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-abcdefghijk';
  return { id, user: `user-${id % 10_000}`, amount: (id % 1000) + 0.25, ts: 1_764_547_200_000, kind: 'purchase', region: 'eu-west', pad };
}

async function write(client: pg.PoolClient, partition: number, from: number, batch: ReadonlyMap<string, Purchase>): Promise<void> {
  await client.query('BEGIN');
  const fence = await client.query(`UPDATE "${schema}".fences SET next_offset = $1 WHERE partition = $2 AND next_offset = $3`, [
    from + batch.size,
    partition,
    from,
  ]);
  if (fence.rowCount !== 1) throw new Error(`partition ${partition} is not at ${from}`);
  const { rows: fresh } = await client.query<{ idempotency_key: string }>(
    `INSERT INTO "${schema}".processed_messages SELECT $1, k FROM unnest($2::text[]) AS k ON CONFLICT DO NOTHING RETURNING idempotency_key`,
    ['bench', [...batch.keys()]],
  );
  const rows = fresh.map(({ idempotency_key: key }) => batch.get(key)!);
  await client.query(
    `INSERT INTO "${schema}".purchases
     SELECT * FROM unnest($1::bigint[], $2::text[], $3::numeric[], $4::bigint[], $5::text[], $6::text[], $7::text[])`,
    [
      rows.map((row) => row.id),
      rows.map((row) => row.user),
      rows.map((row) => row.amount),
      rows.map((row) => row.ts),
      rows.map((row) => row.kind),
      rows.map((row) => row.region),
      rows.map((row) => row.pad),
    ],
  );
  await client.query('COMMIT');
}

async function fill(partition: number): Promise<void> {
  const client = await pool.connect();
  await client.query(`INSERT INTO "${schema}".fences VALUES ($1, 0)`, [partition]);
  for (let from = 0; from < perPartition; from += BATCH) {
    const ids = Array.from({ length: Math.min(BATCH, perPartition - from) }, (_, i) => partition * perPartition + from + i);
    await write(client, partition, from, new Map(ids.map((id) => [`purchase-${id}`, purchase(id)])));
  }
  client.release();
}

console.log('{"state":"running"}');
await Promise.all(Array.from({ length: partitions }, async (_, partition) => await fill(partition)));
await pool.end();
// Like a job, it stays until it is stopped: whoever measures it looks at the table first.
const staying = setInterval(() => undefined, 1_000);
process.once('SIGTERM', () => clearInterval(staying));
