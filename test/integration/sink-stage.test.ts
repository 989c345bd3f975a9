import { randomBytes } from 'node:crypto';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, describe, expect, inject, it, onTestFinished } from 'vitest';
import {
  type Admin,
  Application,
  type ApplicationOptions,
  insert,
  json,
  kafkaClient,
  type KafkaClient,
  postgresSink,
  type PostgresSinkOptions,
  StreamsBuilder,
  string,
} from '../../src/index.ts';
import { FaultProxy } from '../support/fault-proxy.ts';
import { fillInput, InputFlow, type InputValue } from '../support/input-records.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';

let database: TestDatabase;
let client: KafkaClient;
let admin: Admin;
const topics: string[] = [];
const applications: Application[] = [];

beforeAll(async () => {
  database = await createTestDatabase(inject('databaseUrl'));
  client = kafkaClient({ brokers: inject('kafkaBrokers').split(',') });
  admin = client.admin();
});

afterEach(async () => {
  await Promise.all(applications.splice(0).map(async (application) => await application.close({ timeoutMs: 5_000 })));
  if (topics.length > 0) await admin.deleteTopics(topics.splice(0));
});

afterAll(async () => {
  await admin.close();
  await database.drop();
});

interface Trial {
  readonly applicationId: string;
  readonly topic: string;
  readonly table: string;
  readonly start: (options?: Partial<ApplicationOptions>, sink?: Partial<PostgresSinkOptions<string, InputValue>>) => Promise<Application>;
  readonly counts: () => Promise<{ rows: number; ids: number }>;
}

/** A topic, and a table in which a record that was applied twice stands twice. */
async function trial(partitions: number): Promise<Trial> {
  const name = randomBytes(6).toString('hex');
  const [applicationId, topic, table] = [`app-${name}`, `in-${name}`, `t_${name}`];
  await admin.createTopics([{ topic, partitions }]);
  topics.push(topic);
  await database.query(
    `CREATE TABLE ${table} (position bigint GENERATED ALWAYS AS IDENTITY, id text NOT NULL, key text NOT NULL, n integer NOT NULL)`,
  );
  return {
    applicationId,
    topic,
    table,
    start: async (options = {}, sink = {}) => {
      const builder = new StreamsBuilder();
      builder
        .stream(topic, { key: string(), value: json<InputValue>() })
        .filter((value) => value.n >= 0)
        .sink(
          postgresSink<string, InputValue>({
            connection: database.url,
            effect: insert<string, InputValue>({ table, columns: { id: 'id', key: 'key', n: 'n' } }),
            ...sink,
          }),
          { name: 'store' },
        );
      const application = new Application({
        applicationId,
        topology: builder.build(),
        kafka: client,
        logger: pino({ level: 'silent' }),
        sessionTimeoutMs: 6_000,
        heartbeatIntervalMs: 500,
        instanceId: randomBytes(4).toString('hex'),
        ...options,
      });
      applications.push(application);
      await application.start();
      return application;
    },
    counts: async () => {
      const [row] = await database.query<{ rows: number; ids: number }>(
        `SELECT count(*)::int AS rows, count(DISTINCT id)::int AS ids FROM ${table}`,
      );
      return row ?? { rows: 0, ids: 0 };
    },
  };
}

async function metric(application: Application, name: string): Promise<number> {
  const found = await application.metrics.getSingleMetric(name)?.get();
  return found?.values.reduce((sum, { value }) => sum + value, 0) ?? 0;
}

async function outOfOrder(table: string): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM (SELECT n, lag(n) OVER (PARTITION BY key ORDER BY position) AS before FROM ${table}) AS t WHERE n < before`,
  );
  return row?.count ?? -1;
}

describe('the database is down for longer than the session timeout', () => {
  it('nothing is lost, doubled or out of order, the membership is kept, and it catches up', async () => {
    const { topic, table, start, counts } = await trial(4);
    const url = new URL(database.url);
    const proxy = await FaultProxy.postgres(url.hostname, Number(url.port));
    url.hostname = '127.0.0.1';
    url.port = String(proxy.port);
    try {
      const application = await start({ maxBufferedBytes: 64 * 1024 }, { connection: url.toString() });
      await fillInput(client, topic, { records: 2_000 });
      await expect.poll(async () => (await counts()).rows, { timeout: 20_000 }).toBe(2_000);
      const rebalances = await metric(application, 'tidemark_rebalances_total');

      proxy.refuse();
      await fillInput(client, topic, { records: 30_000, from: 2_000 });
      const downSince = performance.now();
      await expect.poll(() => performance.now() - downSince, { timeout: 20_000 }).toBeGreaterThan(9_000);
      expect((await counts()).rows).toBe(2_000);
      expect(application.state).toBe('running');

      proxy.resume();
      await expect.poll(async () => (await counts()).ids, { timeout: 40_000 }).toBe(32_000);
      expect(await counts()).toEqual({ rows: 32_000, ids: 32_000 });
      expect(await outOfOrder(table)).toBe(0);
      expect(await metric(application, 'tidemark_rebalances_total')).toBe(rebalances);
      expect(await metric(application, 'tidemark_sink_retries_total')).toBeGreaterThan(0);
    } finally {
      await proxy.close();
    }
  });
});

describe('members come and go while records flow', () => {
  it.each(['exactly-once', 'fence-only', 'key-only'] as const)('in mode %s each record is applied once, in order', async (mode) => {
    const { topic, table, start, counts } = await trial(6);
    const flow = new InputFlow(client, topic, { records: 0, recordsPerSecond: 4_000 });
    onTestFinished(async () => void (await flow.stop()));
    const first = await start({}, { mode });
    await expect.poll(async () => (await counts()).rows, { timeout: 20_000 }).toBeGreaterThan(100);
    const second = await start({}, { mode });
    await start({}, { mode });
    await expect.poll(async () => await metric(second, 'tidemark_sink_applied_total'), { timeout: 30_000 }).toBeGreaterThan(0);
    await first.close();
    await start({}, { mode });
    const records = await flow.stop();
    await expect.poll(async () => (await counts()).ids, { timeout: 60_000 }).toBe(records);
    expect(await counts()).toEqual({ rows: records, ids: records });
    expect(await outOfOrder(table)).toBe(0);
  });
});

describe('a stage starts again', () => {
  it('where it was, also if the offsets of its group are gone: the position is in the database', async () => {
    const { applicationId, topic, start, counts } = await trial(2);
    await fillInput(client, topic, { records: 1_000 });
    const first = await start();
    await expect.poll(async () => (await counts()).rows, { timeout: 20_000 }).toBe(1_000);
    await first.close();
    const offsets = await admin.groupOffsets(`${applicationId}-store`, [topic]);
    expect(offsets.reduce((sum, { offset }) => sum + offset, 0n)).toBe(1_000n);

    // Another group for the same application and stage in the database, such as after offsets.retention.minutes.
    await database.query(`UPDATE tidemark.fences SET application = $1 WHERE application = $2`, [`${applicationId}-again`, applicationId]);
    await fillInput(client, topic, { records: 500, from: 1_000 });
    await start({ applicationId: `${applicationId}-again` }, { mode: 'fence-only' });
    await expect.poll(async () => (await counts()).ids, { timeout: 20_000 }).toBe(1_500);
    expect(await counts()).toEqual({ rows: 1_500, ids: 1_500 });
  });

  it('but not on a topic that was deleted and made anew, whose records would be taken for applied ones', async () => {
    const { topic, start, counts } = await trial(1);
    await fillInput(client, topic, { records: 300 });
    const first = await start();
    await expect.poll(async () => (await counts()).rows, { timeout: 20_000 }).toBe(300);
    await first.close();
    await admin.deleteTopics([topic]);
    await expect.poll(async () => (await admin.partitionCounts([topic])).size, { timeout: 10_000 }).toBe(0);
    await admin.createTopics([{ topic, partitions: 1 }]);
    await fillInput(client, topic, { records: 100, from: 300 });
    const second = await start();
    await expect(second.finished).rejects.toThrow(/applied up to offset 300, but its log ends at 100/);
    expect((await counts()).rows).toBe(300);
  });
});

describe('records that cannot be read', () => {
  it('stand in the dead letters of the sink, and all others in the table', async () => {
    const { topic, start, counts } = await trial(1);
    const producer = client.idempotentProducer();
    await producer.init();
    await producer.loadTopics([topic]);
    for (let i = 0; i < 100; i++) {
      const value = i % 10 === 0 ? '{"broken' : JSON.stringify({ id: `record-${i}`, key: 'k', n: i } satisfies InputValue);
      producer.append(topic, 0, 'k', value, 1_700_000_000_000, []);
    }
    await producer.flush();
    await producer.close();
    const application = await start({ onDeserialisationError: 'dead-letter' });
    await expect.poll(async () => (await counts()).rows, { timeout: 20_000 }).toBe(90);
    const letters = await database.query<{ offset: string; value: Buffer }>(
      'SELECT "offset", value FROM tidemark.dead_letters WHERE topic = $1 ORDER BY "offset"',
      [topic],
    );
    expect(letters.map((letter) => Number(letter.offset))).toEqual([0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
    expect(letters[0]?.value.toString()).toBe('{"broken');
    await expect.poll(async () => await metric(application, 'tidemark_sink_dead_lettered_total')).toBe(10);
  });
});
