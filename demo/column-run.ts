import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';
import { type Admin, kafkaClient } from '../src/index.ts';
import { flightsTable } from '../topologies/flights.ts';
import { paymentsTables } from '../topologies/payments.ts';
import { committedValues, type Count, countInKafka, countInPostgres } from './counts.ts';
import { Fleet } from './fleet.ts';
import { flightId, publishFlights, type RawFlight } from './flights-input.ts';
import { type Column, type Names, namesOf, type PipelineName } from './guarantees.ts';
import { accountId, ACCOUNTS, INITIAL_BALANCE_CENTS, makeTransfers, publishTransfers } from './payments-input.ts';
import { SeededRandom } from './seeded-random.ts';

export interface RunOptions {
  readonly run: string;
  readonly brokers: string;
  readonly database: string;
  readonly stateDirectory: string;
  readonly seed: number;
  readonly kills: number;
  readonly workers: number;
  readonly transfers: number;
  readonly workMicros: number;
  readonly signal: AbortSignal;
  readonly onProgress: (line: string) => void;
}

export interface PipelineResult {
  readonly name: PipelineName;
  readonly recordsIn: number;
  readonly deadLetters: number;
  /** In Kafka as a `read_committed` reader sees it: each input record should have its outputs once. */
  readonly kafka: Count;
  /** In Postgres: each flight and each transfer should be there once, however often its sender sent it. */
  readonly postgres: Count;
}

export interface ColumnResult {
  readonly column: Column;
  readonly names: Names;
  readonly kills: number;
  readonly ms: number;
  readonly pipelines: readonly PipelineResult[];
}

const PARTITIONS = 4;
/** Of the Java producer. */
const BATCH_BYTES = 16 * 1024;
const DRAIN_DEADLINE_MS = 60_000;
const POLL_MS = 250;
/** At most so many records are written between two kills... */
const KILL_AFTER_RECORDS = 3_000;
/** ...unless that takes longer than this. */
const NEXT_KILL_DEADLINE_MS = 5_000;
/** Nothing is on its way any more when all lags are zero and no topic grows over so many looks in a row. */
const QUIET_LOOKS = 4;

/** Runs both pipelines under one guarantee, kills workers while records flow, lets it drain, and counts. */
export async function runColumn(column: Column, flights: readonly RawFlight[], pool: Pool, options: RunOptions): Promise<ColumnResult> {
  const { run, brokers, database, stateDirectory, seed, workMicros, signal, onProgress } = options;
  const names = namesOf(run, column);
  const client = kafkaClient({ brokers: brokers.split(','), clientId: 'demo' });
  const admin = client.admin();
  // Small batches: a batch is fetched whole, and what a killed at-most-once worker loses is what it had fetched.
  const producer = client.idempotentProducer({ batchBytes: BATCH_BYTES });
  const started = Date.now();
  const topics = topicsOf(names);
  // The flights keep their times, which are of 2001: with the default retention, the broker would delete them within minutes.
  const configs = { 'retention.ms': '-1' };
  await admin.createTopics(topics.all.map((topic) => ({ topic, partitions: PARTITIONS, configs })));
  await createTables(pool, names);
  const fleet = new Fleet(
    { brokers, database, guarantee: column.guarantee, sinkMode: column.sinkMode, names, stateDirectory, workMicros },
    options.workers,
  );
  try {
    const transfers = makeTransfers(options.transfers, new SeededRandom(seed));
    await producer.init();
    const sending = Promise.all([
      publishFlights(producer, `${names.prefix}flights`, flights, signal),
      publishTransfers(producer, `${names.prefix}transfers`, transfers, new SeededRandom(seed + 1), signal),
    ]);
    // Awaited below; killing begins at once, and its failure must not leave this one unhandled.
    sending.catch(() => undefined);
    const progress = new Progress(admin, names, topics.all);
    await killWhileRecordsFlow(fleet, progress, column, options);
    const [flightsInput, payments] = await sending;
    await drain(fleet, progress, column, options);
    await fleet.stop();
    onProgress(`${column.guarantee}: counting`);

    const deadLetters = (await committedValues(client, admin, topics.deadLetters)).length;
    const flightsOnce = new Map(flights.map((_, line) => [flightId(line), 1]));
    const transfersSent = new Map(payments.transfers.map(({ id }) => [id, payments.resent.has(id) ? 2 : 1]));
    const transfersOnce = new Map(payments.transfers.map(({ id }) => [id, 1]));
    const pipelines: PipelineResult[] = [
      {
        name: 'flights',
        recordsIn: flights.length + flightsInput.badLines,
        deadLetters,
        kafka: await countInKafka(client, admin, [`${names.prefix}flights-enriched`], flightsOnce),
        postgres: await countInPostgres(pool, names, 'flights', flightsOnce),
      },
      {
        name: 'payments',
        recordsIn: payments.transfers.length + payments.resent.size,
        deadLetters: 0,
        kafka: await countInKafka(client, admin, [`${names.prefix}transfers-valid`, `${names.prefix}transfers-refused`], transfersSent),
        postgres: await countInPostgres(pool, names, 'transfers', transfersOnce),
      },
    ];
    return { column, names, kills: fleet.kills, ms: Date.now() - started, pipelines };
  } finally {
    await fleet.abandon();
    await producer.close();
    await admin.close();
  }
}

/** Leaves a cluster and a database that were given as they were found. */
export async function removeColumn(column: Column, pool: Pool, { run, brokers }: Pick<RunOptions, 'run' | 'brokers'>): Promise<void> {
  const names = namesOf(run, column);
  const admin = kafkaClient({ brokers: brokers.split(','), clientId: 'demo' }).admin();
  try {
    await admin.deleteTopics(topicsOf(names).all);
  } finally {
    await admin.close();
  }
  await pool.query(`DROP SCHEMA IF EXISTS "${names.schema}" CASCADE`);
}

function topicsOf({ prefix }: Names): { readonly all: readonly string[]; readonly deadLetters: string } {
  const deadLetters = `${prefix}dead-letters`;
  const rest = ['flights', 'flights-enriched', 'flights-delayed', 'transfers', 'transfers-valid', 'transfers-refused'];
  return { all: [...rest.map((topic) => `${prefix}${topic}`), deadLetters], deadLetters };
}

async function createTables(pool: Pool, { schema }: Names): Promise<void> {
  await pool.query(`CREATE SCHEMA "${schema}"`);
  await pool.query(flightsTable(schema));
  await pool.query(paymentsTables(schema));
  await pool.query(`INSERT INTO "${schema}".accounts (id, balance_cents) SELECT id, $2 FROM unnest($1::text[]) AS id`, [
    Array.from({ length: ACCOUNTS }, (_, i) => accountId(i)),
    INITIAL_BALANCE_CENTS,
  ]);
}

interface Look {
  /** Records that some consumer group has still to read. */
  readonly lag: bigint;
  /** The sum of all ends: grows while anything is written. */
  readonly ends: bigint;
}

/** How far the consumer groups of a column are behind. */
class Progress {
  readonly #admin: Admin;
  readonly #topics: readonly string[];
  readonly #groups: readonly { readonly group: string; readonly topic: string }[];

  constructor(admin: Admin, { prefix, applicationId }: Names, topics: readonly string[]) {
    this.#admin = admin;
    this.#topics = topics;
    this.#groups = [
      { group: applicationId.flights, topic: `${prefix}flights` },
      { group: `${applicationId.flights}-flights-table`, topic: `${prefix}flights-enriched` },
      { group: applicationId.payments, topic: `${prefix}transfers` },
      { group: `${applicationId.payments}-ledger`, topic: `${prefix}transfers-valid` },
    ];
  }

  async look(): Promise<Look> {
    const bounds = new Map(await Promise.all(this.#topics.map(async (topic) => [topic, await this.#admin.logBounds(topic)] as const)));
    let lag = 0n;
    for (const { group, topic } of this.#groups) {
      const committed = new Map((await this.#admin.groupOffsets(group, [topic])).map(({ partition, offset }) => [partition, offset]));
      for (const { partition, start, highWatermark } of bounds.get(topic) ?? []) lag += highWatermark - (committed.get(partition) ?? start);
    }
    let ends = 0n;
    for (const partitions of bounds.values()) for (const { highWatermark } of partitions) ends += highWatermark;
    return { lag, ends };
  }
}

/** Kills while there is something to lose: each time after a random share of the work, and never a worker that has hardly begun. */
async function killWhileRecordsFlow(fleet: Fleet, progress: Progress, column: Column, options: RunOptions): Promise<void> {
  const { seed, kills, signal, onProgress, workers } = options;
  const random = new SeededRandom(seed + 2);
  for (let kill = 0; kill < kills; kill++) {
    const worker = random.integer(workers);
    const deadline = Date.now() + NEXT_KILL_DEADLINE_MS;
    const begun = await progress.look();
    // What is written is work that was done, by whatever worker.
    const enough = begun.ends + BigInt(Math.round(random.between(0.3, 1) * KILL_AFTER_RECORDS));
    await fleet.started();
    for (let look = begun; look.ends < enough && Date.now() < deadline; look = await progress.look()) {
      await pause(random.between(20, POLL_MS), signal);
      fleet.check();
    }
    const { lag } = await progress.look();
    if (lag === 0n && kill > 0) return;
    onProgress(`${column.guarantee}: SIGKILL ${kill + 1} of ${kills}, ${lag} records on their way`);
    await fleet.kill(worker);
  }
}

async function drain(fleet: Fleet, progress: Progress, column: Column, options: RunOptions): Promise<void> {
  const deadline = Date.now() + DRAIN_DEADLINE_MS;
  let quiet = 0;
  let before: Look | undefined;
  while (quiet < QUIET_LOOKS) {
    fleet.check();
    const look = await progress.look();
    quiet = look.lag === 0n && look.ends === before?.ends ? quiet + 1 : 0;
    before = look;
    if (quiet === 0) options.onProgress(`${column.guarantee}: draining, ${look.lag} records on their way`);
    if (Date.now() > deadline)
      throw new Error(`${column.guarantee} did not drain within ${DRAIN_DEADLINE_MS} ms: ${look.lag} records are left`);
    await pause(POLL_MS, options.signal);
  }
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(Math.max(0, ms), undefined, { signal });
}
