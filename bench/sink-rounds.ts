import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { nodeJob } from './engines.ts';
import { median, pairedRatio, ratio, thousands, whole } from './figures.ts';
import { type Command, Job } from './job.ts';
import { purchasesTable } from './purchases-table.ts';
import type { Section } from './section.ts';
import { PARTITIONS, withTopics, type Workbench } from './workbench.ts';

const RECORDS = 300_000;
const WANTED = 30_000;
const LOOK_MS = 25;
const STUCK_MS = 60_000;

interface Writer {
  readonly title: string;
  command(workbench: Workbench, input: string, schema: string): Command;
}

const SINK: Writer = {
  title: "Tidemark's sink, from Kafka",
  command: (workbench, input, schema) => {
    const { brokers, database } = workbench;
    return nodeJob(workbench, 'tidemark-sink', { brokers, group: workbench.name('sink'), in: input, database, schema });
  },
};

const BY_HAND: Writer = {
  title: 'statements by hand, from memory',
  command: (workbench, _input, schema) => {
    const { database } = workbench;
    return nodeJob(workbench, 'plain-postgres', { database, schema, records: String(RECORDS), partitions: String(PARTITIONS) });
  },
};

const WRITERS: readonly Writer[] = [SINK, BY_HAND];

/** Rows per second into Postgres, with positions and idempotency keys. */
export async function sinkRounds(workbench: Workbench, rounds: number): Promise<Section> {
  const { peer, database, onProgress } = workbench;
  const figures = new Map<Writer, number[]>(WRITERS.map((writer) => [writer, []]));
  const input = workbench.name('keyed');
  const pool = new pg.Pool({ connectionString: database, max: 1 });
  pool.on('error', () => undefined);
  try {
    const { rows } = await pool.query<{ version: string; fsync: string }>(
      `SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync`,
    );
    await withTopics(workbench, [input], async () => {
      onProgress(`Writing ${whole(RECORDS)} records with idempotency keys`);
      await peer.call('generate', input, RECORDS, 'keyed');
      for (let round = 0; round < rounds; round++) {
        for (let turn = 0; turn < WRITERS.length; turn++) {
          const writer = WRITERS[(round + turn) % WRITERS.length]!;
          const perSecond = await sinkOnce(workbench, pool, writer, input);
          figures.get(writer)!.push(perSecond);
          onProgress(`Round ${round + 1} of ${rounds}, ${writer.title}: ${thousands(perSecond)} rows/s`);
        }
      }
    });
    return report(figures, rounds, `PostgreSQL ${rows[0]?.version} with fsync ${rows[0]?.fsync}`);
  } finally {
    await pool.end();
  }
}

async function sinkOnce(workbench: Workbench, pool: pg.Pool, writer: Writer, input: string): Promise<number> {
  const schema = workbench.name('sink');
  await pool.query(`CREATE SCHEMA "${schema}"`);
  await pool.query(purchasesTable(schema));
  const job = new Job(writer.title, writer.command(workbench, input, schema), workbench.signal);
  try {
    const perSecond = await Promise.race([clock(pool, schema), job.failed()]);
    await job.stop();
    await verify(pool, schema, writer);
    return perSecond;
  } finally {
    await job.stop();
    await pool.query(`DROP SCHEMA "${schema}" CASCADE`);
  }
}

/** By the positions that are committed in the database, from the first that is seen to the last. */
async function clock(pool: pg.Pool, schema: string): Promise<number> {
  let first: { readonly at: number; readonly rows: number } | undefined;
  let last = 0;
  let movedAt = performance.now();
  for (;;) {
    const position = await applied(pool, schema);
    const now = performance.now();
    if (position > 0) first ??= { at: now, rows: position };
    if (position > last) movedAt = now;
    last = position;
    if (first !== undefined && position >= RECORDS) return ((position - first.rows) * 1000) / Math.max(1, now - first.at);
    if (now - movedAt > STUCK_MS) throw new Error(`the sink is stuck at ${position} of ${RECORDS} records`);
    await sleep(LOOK_MS);
  }
}

async function applied(pool: pg.Pool, schema: string): Promise<number> {
  const { rows: tables } = await pool.query<{ there: boolean }>('SELECT to_regclass($1) IS NOT NULL AS there', [`"${schema}".fences`]);
  if (tables[0]?.there !== true) return 0;
  const { rows } = await pool.query<{ applied: string | null }>(`SELECT sum(next_offset)::text AS applied FROM "${schema}".fences`);
  return Number(rows[0]?.applied ?? 0);
}

async function verify(pool: pg.Pool, schema: string, writer: Writer): Promise<void> {
  const { rows } = await pool.query<{ rows: string; purchases: string; keys: string }>(
    `SELECT count(*)::text AS rows, count(DISTINCT id)::text AS purchases, (SELECT count(*)::text FROM "${schema}".processed_messages) AS keys
       FROM "${schema}".purchases`,
  );
  const found = rows[0];
  if (Object.values(found ?? {}).every((count) => Number(count) === RECORDS)) return;
  throw new Error(`${writer.title}: the table is wrong: ${JSON.stringify(found)} instead of ${RECORDS} of each`);
}

function report(figures: ReadonlyMap<Writer, readonly number[]>, rounds: number, server: string): Section {
  const ours = figures.get(SINK)!;
  const found = median(ours);
  return {
    title: 'Sink, rows per second into Postgres',
    method:
      `${whole(RECORDS)} JSON records with an idempotency key each, 4 partitions, into a table of 7 columns; in one transaction per 500 records: the fence row, the ` +
      `keys, the rows. ${server}; ${rounds} rounds. The clock is the positions committed in the database. Afterwards each record was there once, and so was its key.`,
    columns: ['writer', 'median', 'min', 'max', 'sink / by hand'],
    rows: WRITERS.map((writer) => {
      const perSecond = figures.get(writer)!;
      return [
        writer.title,
        ...[median(perSecond), Math.min(...perSecond), Math.max(...perSecond)].map(thousands),
        writer === SINK ? ratio(pairedRatio(ours, figures.get(BY_HAND)!)) : '',
      ];
    }),
    notes: [
      'By hand: the same statements with node-postgres on 4 connections, awaited one by one, with neither Kafka nor an engine in front of them.',
    ],
    targets: [{ wanted: `at least ${whole(WANTED)} rows per second`, found: whole(found), holds: found >= WANTED }],
  };
}
