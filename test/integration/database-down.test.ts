/**
 * The database is gone for a while, by a crash or behind a broken network, while records flow. Guards against records that are dropped or
 * piled up in memory meanwhile, a membership of the group that is lost with it, and a sink that does not find back.
 */
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { type Application, insert, json, postgresSink, string, StreamsBuilder } from '../../src/index.ts';
import { ApplicationBench, type RunningApplication, until } from '../support/application-bench.ts';
import { FaultProxy } from '../support/fault-proxy.ts';
import { IndependentReader } from '../support/independent-reader.ts';
import { fillInput, type InputValue } from '../support/input-records.ts';
import { exact, judgePostgres, lagOf, tableStatement } from '../support/judge.ts';
import { startDatabase } from '../support/stack.ts';
import { createTestDatabase, type TestDatabase, withDatabase } from '../support/test-database.ts';

const RECORDS = 40_000;
const PARTITIONS = 2;
/** A small part of the input, so that what is read while nothing can be written shows. */
const BUFFERED_BYTES = 64 * 1024;
const FETCHED_BYTES = 32 * 1024;
const SESSION_MS = 6_000;

let server: Awaited<ReturnType<typeof startDatabase>>;
let database: TestDatabase;
let proxy: FaultProxy;
let bench: ApplicationBench;
let reader: IndependentReader;

beforeAll(async () => {
  server = await startDatabase();
  database = await createTestDatabase(server.url);
  proxy = await FaultProxy.postgres('127.0.0.1', server.port);
  bench = await ApplicationBench.open(inject('kafkaBrokers'));
  reader = await IndependentReader.open({ brokers: inject('kafkaBrokers'), jars: inject('kafkaJars') });
});

afterAll(async () => {
  await bench.close();
  await reader.close();
  await proxy.close();
  await database.pool.end();
  await server.close();
});

interface Run extends RunningApplication {
  readonly group: string;
  readonly input: string;
  readonly table: string;
}

async function run(): Promise<Run> {
  const table = bench.name('t').replace('-', '_');
  await database.query(tableStatement(table));
  const input = await bench.topic('in', PARTITIONS);
  await fillInput(bench.client, input, { records: RECORDS });
  const builder = new StreamsBuilder();
  const connection = withDatabase(database.url, new URL(database.url).pathname.slice(1), proxy.port);
  const effect = insert<string, InputValue>({ table, columns: { id: 'id', key: 'key', n: 'n' } });
  builder
    .stream(input, { key: string(), value: json<InputValue>() })
    .sink(postgresSink({ connection, effect, maxBatchRecords: 20, connectTimeoutMs: 2_000, statementTimeoutMs: 2_000 }), {
      name: 'rows',
    });
  const applicationId = bench.name('app');
  const running = bench.application({
    applicationId,
    topology: builder.build(),
    sessionTimeoutMs: SESSION_MS,
    maxBufferedBytes: BUFFERED_BYTES,
    fetch: { maxPartitionBytes: FETCHED_BYTES, maxBufferedBytes: 2 * FETCHED_BYTES, maxWaitMs: 50 },
  });
  return { ...running, group: `${applicationId}-rows`, input, table };
}

async function rowsIn(table: string): Promise<number> {
  return Number((await database.query<{ rows: string }>(`SELECT count(*) AS rows FROM ${table}`))[0]?.rows);
}

/** Bytes of the input that the application has read so far. */
async function readBytes({ metrics }: Application): Promise<number> {
  const text = await metrics.getSingleMetricAsString('tidemark_bytes_consumed_total');
  return [...text.matchAll(/^tidemark_bytes_consumed_total\S* (\d+)/gm)].reduce((sum, [, bytes]) => sum + Number(bytes), 0);
}

async function finish({ application, events, group, input, table }: Run): Promise<void> {
  const check = (): void => {
    if (application.state === 'failed') throw new Error(JSON.stringify(events));
  };
  await until('all rows', async () => {
    check();
    return (await rowsIn(table)) >= RECORDS;
  });
  await application.close();
  expect(await lagOf(reader, group, input)).toBe(0n);
  const ask = async <R extends Record<string, unknown>>(text: string): Promise<R[]> => await database.query<R>(text);
  expect(await judgePostgres(reader, ask, { input, table, once: true })).toEqual(exact(RECORDS));
}

/** The first failure to write is told at once, as one line; the last only when it is over. */
function troubles({ events }: Run): number {
  return events.filter(({ level }) => level === 'warn').length;
}

const OUTAGES = [
  { outage: 'is killed and started again', begin: async () => await server.kill(), end: async () => await server.restart() },
  { outage: 'cannot be reached', begin: async () => proxy.refuse(), end: async () => proxy.resume() },
  { outage: 'does not answer', begin: async () => proxy.pause(), end: async () => proxy.resume() },
];

describe('records are lost, repeated or piled up when the database', () => {
  it.each(OUTAGES)('$outage in the middle of the work', async ({ begin, end }) => {
    const started = await run();
    await started.application.start();
    await until('the first rows', async () => (await rowsIn(started.table)) > 0);
    await begin();
    // An outage after the work is done would prove nothing.
    expect(await lagOf(reader, started.group, started.input)).toBeGreaterThan(0n);
    try {
      await until('the outage is noticed', () => troubles(started) > 0);
      // What was read when the buffers are full is all that is read.
      // And were it not for the heartbeats, the session would end in this time.
      let bytes = 0;
      let since = performance.now();
      await until('reading stands still for longer than the session', async () => {
        const now = await readBytes(started.application);
        if (now !== bytes) since = performance.now();
        bytes = now;
        return performance.now() - since > SESSION_MS + 1_000;
      });
      expect(bytes).toBeGreaterThan(0);
      expect(started.events.filter(({ message }) => /^(partitions|membership) .*lost$/.test(message))).toEqual([]);
      expect(await lagOf(reader, started.group, started.input)).toBeGreaterThan(0n);
    } finally {
      await end();
    }
    await finish(started);
    expect(started.events.filter(({ message }) => message === 'partitions assigned to the sink stage')).toHaveLength(1);
  });

  it('is down already at the start', async () => {
    const started = await run();
    await server.kill();
    try {
      await started.application.start();
      await until('the outage is noticed', () => troubles(started) > 0);
      expect(started.application.state).toBe('running');
    } finally {
      await server.restart();
    }
    await finish(started);
  });
});
