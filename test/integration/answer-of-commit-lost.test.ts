/**
 * The connection to Postgres breaks at COMMIT or in the middle of a batch, while an application writes what it reads from Kafka. Guards
 * against a batch that is written again although it was committed, and one that is passed over although it was not.
 */
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { insert, json, postgresSink, string, StreamsBuilder, type Topology } from '../../src/index.ts';
import { ApplicationBench, until } from '../support/application-bench.ts';
import { FaultProxy } from '../support/fault-proxy.ts';
import type { FaultRule } from '../support/fault-rule.ts';
import { IndependentReader } from '../support/independent-reader.ts';
import { fillInput, type InputValue } from '../support/input-records.ts';
import { exact, judgePostgres, lagOf, tableStatement } from '../support/judge.ts';
import { createTestDatabase, type TestDatabase, withDatabase } from '../support/test-database.ts';

const RECORDS = 2_000;
const PARTITIONS = 2;

let bench: ApplicationBench;
let reader: IndependentReader;
let database: TestDatabase;

beforeAll(async () => {
  bench = await ApplicationBench.open(inject('kafkaBrokers'));
  reader = await IndependentReader.open({ brokers: inject('kafkaBrokers'), jars: inject('kafkaJars') });
  database = await createTestDatabase(inject('databaseUrl'));
});

afterAll(async () => {
  await bench.close();
  await reader.close();
  await database.drop();
});

function topology(input: string, table: string, connection: string): Topology {
  const builder = new StreamsBuilder();
  const effect = insert<string, InputValue>({ table, columns: { id: 'id', key: 'key', n: 'n' } });
  builder
    .stream(input, { key: string(), value: json<InputValue>() })
    .sink(postgresSink({ connection, effect, maxBatchRecords: 50, connectTimeoutMs: 3_000, statementTimeoutMs: 3_000 }), { name: 'rows' });
  return builder.build();
}

interface Break {
  readonly what: string;
  readonly query: RegExp;
  readonly action: FaultRule['action'];
}

const BREAKS: readonly Break[] = [
  { what: 'the answer of COMMIT is lost', query: /^COMMIT/, action: 'closeAfter' },
  { what: 'the answer of COMMIT never comes', query: /^COMMIT/, action: 'dropResponse' },
  { what: 'COMMIT itself is lost', query: /^COMMIT/, action: 'closeBefore' },
  { what: 'the connection breaks before the effect', query: /INSERT INTO "t_/, action: 'closeBefore' },
  { what: 'the answer of the effect is lost', query: /INSERT INTO "t_/, action: 'closeAfter' },
];

describe.each([
  { often: 'once', times: 1 },
  { often: 'four times', times: 4 },
])('a row is lost or written twice ($often)', ({ times }) => {
  it.concurrent.each(BREAKS)('not when $what', async ({ query, action }) => {
    const url = new URL(database.url);
    const proxy = await FaultProxy.postgres(url.hostname, Number(url.port === '' ? 5432 : url.port));
    try {
      const table = bench.name('t').replace('-', '_');
      await database.query(tableStatement(table));
      const input = await bench.topic('in', PARTITIONS);
      await fillInput(bench.client, input, { records: RECORDS });
      const applicationId = bench.name('app');
      // Not the first ones, which set the tables up and claim the partitions.
      const rule = proxy.addRule({ query, action, nth: 8, times });
      const connection = withDatabase(database.url, url.pathname.slice(1), proxy.port);
      const { application, events } = bench.application({ applicationId, topology: topology(input, table, connection) });
      await application.start();
      await rule.waitFired(times, 60_000);
      // Offsets are committed now and then, and when the application is closed.
      await until('all rows', async () => {
        if (application.state === 'failed') throw new Error(JSON.stringify(events));
        const [counted] = await database.query<{ rows: string }>(`SELECT count(DISTINCT id) AS rows FROM ${table}`);
        return Number(counted?.rows) >= RECORDS;
      });
      await application.close();
      expect(await lagOf(reader, `${applicationId}-rows`, input)).toBe(0n);
      const ask = async <R extends Record<string, unknown>>(text: string): Promise<R[]> => await database.query<R>(text);
      expect(await judgePostgres(reader, ask, { input, table, once: true })).toEqual(exact(RECORDS));
    } finally {
      await proxy.close();
    }
  });
});
