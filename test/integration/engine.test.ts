import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, describe, expect, inject, it, vi } from 'vitest';
import {
  type Admin,
  Application,
  type ApplicationOptions,
  type Guarantee,
  json,
  kafkaClient,
  type KafkaClient,
  StreamsBuilder,
  string,
  type Topology,
} from '../../src/index.ts';
import { IndependentReader } from '../support/independent-reader.ts';
import { fillInput, InputFlow, type InputValue } from '../support/input-records.ts';
import { drained, exactInKafka, judgeKafka, lagOf } from '../support/judge.ts';

let client: KafkaClient;
let admin: Admin;
let reader: IndependentReader;
let stateDirectory: string;
const topics: string[] = [];
const applications: Application[] = [];

beforeAll(async () => {
  const brokers = inject('kafkaBrokers');
  client = kafkaClient({ brokers: brokers.split(',') });
  admin = client.admin();
  reader = await IndependentReader.open({ brokers, jars: inject('kafkaJars') });
  stateDirectory = await mkdtemp(join(tmpdir(), 'tidemark-engine-'));
});

afterEach(async () => {
  await Promise.all(applications.splice(0).map(async (application) => await application.close({ timeoutMs: 5_000 })));
  if (topics.length > 0) await admin.deleteTopics(topics.splice(0));
});

afterAll(async () => {
  await reader.close();
  await admin.close();
  await rm(stateDirectory, { recursive: true });
});

/** Names of an application and its topics that no other run has. */
async function names(partitions: number) {
  const name = randomBytes(6).toString('hex');
  const made = { group: `app-${name}`, input: `in-${name}`, output: `out-${name}`, name };
  await topic(made.input, partitions);
  await topic(made.output, partitions);
  return made;
}

async function topic(name: string, partitions: number): Promise<void> {
  await admin.createTopics([{ topic: name, partitions }]);
  topics.push(name);
}

function mapped(input: string | RegExp, output: string, onEach: (value: InputValue) => void = () => undefined): Topology {
  const builder = new StreamsBuilder();
  builder
    .stream(input, { key: string(), value: json<InputValue>() })
    .peek(onEach)
    .mapValues((value) => ({ ...value, mapped: true }))
    .to(output, { value: json() });
  return builder.build();
}

function application(group: string, topology: Topology, options: Partial<ApplicationOptions> = {}): Application {
  const made = new Application({
    applicationId: group,
    topology,
    kafka: { brokers: inject('kafkaBrokers').split(',') },
    stateDirectory,
    sessionTimeoutMs: 6_000,
    heartbeatIntervalMs: 200,
    closeTimeoutMs: 10_000,
    logger: pino({ level: process.env['TEST_LOG'] ?? 'silent' }),
    ...options,
  });
  applications.push(made);
  return made;
}

async function isRunning(made: Application): Promise<void> {
  await vi.waitFor(() => expect(made.state).toBe('running'), { timeout: 30_000, interval: 20 });
}

describe('instances of one application', () => {
  it('share the work while they come and go, and lose, repeat and reorder nothing', async () => {
    const { group, input, output } = await names(4);
    const flow = new InputFlow(client, input, { records: 0, recordsPerSecond: 2_000 });
    const first = application(group, mapped(input, output));
    await first.start();
    await isRunning(first);
    const second = application(group, mapped(input, output));
    await second.start();
    await isRunning(second);
    // Each has two of the four partitions now.
    await vi.waitFor(async () => expect(await tasksOf(first)).toBe(2), { timeout: 20_000 });
    expect(await tasksOf(second)).toBe(2);
    await first.close();
    await vi.waitFor(async () => expect(await tasksOf(second)).toBe(4), { timeout: 20_000 });
    const third = application(group, mapped(input, output));
    await third.start();
    await isRunning(third);
    const sent = await flow.stop();
    await drained(reader, { group, topic: input });
    await Promise.all([second.close(), third.close()]);
    expect(sent).toBeGreaterThan(1_000);
    expect(await judgeKafka(reader, { input, output, group })).toEqual(exactInKafka(sent));
  });

  it('with another topology are refused with both fingerprints, and the others go on', async () => {
    const { group, input, output } = await names(2);
    const running = application(group, mapped(input, output));
    await running.start();
    await isRunning(running);
    const builder = new StreamsBuilder();
    builder
      .stream(input, { key: string(), value: json<InputValue>() })
      .filter(() => true, { name: 'another-step' })
      .to(output);
    const other = builder.build();
    const refused = application(group, other);
    await refused.start();
    const { fingerprint } = mapped(input, output);
    await expect(refused.finished).rejects.toThrow(new RegExp(`'${fingerprint}'.*'${other.fingerprint}'`, 's'));
    await fillInput(client, input, { records: 200 });
    await drained(reader, { group, topic: input });
    expect(running.state).toBe('running');
    expect(await judgeKafka(reader, { input, output, group })).toEqual(exactInKafka(200));
  });
});

async function tasksOf(made: Application): Promise<number> {
  const text = await made.metrics.getSingleMetricAsString('tidemark_tasks');
  return Number(/^tidemark_tasks (\d+)$/m.exec(text)?.[1]);
}

describe('positions', () => {
  it('reach the end of a topic that was written in transactions, though it ends in markers', async () => {
    const { group, input, output, name } = await names(1);
    const next = `next-${name}`;
    await topic(next, 1);
    await fillInput(client, input, { records: 500 });
    const first = application(group, mapped(input, output));
    const second = application(`${group}-2`, mapped(output, next));
    await first.start();
    await second.start();
    await drained(reader, { group, topic: input });
    await drained(reader, { group: `${group}-2`, topic: output });
    // And they stay there: a commit of a position leads to no other.
    const commits = await text(second, 'tidemark_commits_total');
    await sleep(2_500);
    expect(await text(second, 'tidemark_commits_total')).toBe(commits);
    expect(await lagOf(reader, `${group}-2`, output)).toBe(0n);
    expect(await judgeKafka(reader, { input, output: next, group })).toEqual(exactInKafka(500));
  });
});

async function text(made: Application, metric: string): Promise<string> {
  return await made.metrics.getSingleMetricAsString(metric);
}

describe('a transaction that times out', () => {
  it('while a handler runs is done again, with nothing doubled and nothing lost', async () => {
    const { group, input, output } = await names(2);
    await fillInput(client, input, { records: 2_000 });
    let waits = 0;
    const slow = application(group, mapped(input, output), {
      transactionTimeoutMs: 1_000,
      maxSliceRecords: 100,
      // Each slice is a transaction of its own.
      commitBytes: 1,
      failPoints: async (point) => {
        // Longer than the time-out, with outputs on their way.
        if (point === 'after-flush' && ++waits === 3) await sleep(4_000);
      },
    });
    await slow.start();
    await drained(reader, { group, topic: input });
    expect(waits).toBeGreaterThan(3);
    expect(await text(slow, 'tidemark_errors_total')).toContain('code="FENCED"');
    await slow.close();
    expect(await judgeKafka(reader, { input, output, group })).toEqual(exactInKafka(2_000));
  });
});

describe('topics', () => {
  it('that a pattern matches are read, also those that come later', async () => {
    const { group, output, name } = await names(1);
    await topic(`p-${name}-1`, 1);
    const made = application(group, mapped(new RegExp(`^p-${name}-`), output), { metadataMaxAgeMs: 500 });
    await made.start();
    await fillInput(client, `p-${name}-1`, { records: 100 });
    await drained(reader, { group, topic: `p-${name}-1` });
    await topic(`p-${name}-2`, 2);
    await fillInput(client, `p-${name}-2`, { records: 100, from: 100 });
    await drained(reader, { group, topic: `p-${name}-2` });
    const ids = (await reader.read(output)).records.map(({ value }) => (JSON.parse(String(value)) as InputValue).id);
    expect(ids).toHaveLength(200);
    expect(new Set(ids).size).toBe(200);
  });

  it('that are computed are found when they come up, in order; one that does not exist goes to the dead letters', async () => {
    const { group, input, name } = await names(1);
    for (const route of ['a', 'b']) await topic(`route-${name}-${route}`, 1);
    topics.push(`${group}-dead-letters`);
    const builder = new StreamsBuilder();
    builder.stream(input, { key: string(), value: json<InputValue>() }).to(({ n }) => `route-${name}-${['a', 'b', 'absent'][n % 3]}`);
    await fillInput(client, input, { records: 30, keys: 1 });
    const made = application(group, builder.build(), { onProcessingError: 'dead-letter' });
    await made.start();
    await drained(reader, { group, topic: input });
    const numbers = async (of: string): Promise<number[]> =>
      (await reader.read(of)).records.map(({ value }) => (JSON.parse(String(value)) as InputValue).n);
    const third = (rest: number): number[] => Array.from({ length: 10 }, (_, i) => 3 * i + rest);
    expect(await numbers(`route-${name}-a`)).toEqual(third(0));
    expect(await numbers(`route-${name}-b`)).toEqual(third(1));
    expect(await numbers(`${group}-dead-letters`)).toEqual(third(2));
  });

  it('of records without a key are filled evenly', async () => {
    const { group, input, output } = await names(4);
    await fillInput(client, input, { records: 1_000 });
    const builder = new StreamsBuilder();
    builder
      .stream(input, { key: string(), value: string() })
      .map((value) => [null, value])
      .to(output, { key: { name: 'none', serialise: () => null }, value: string() });
    await application(group, builder.build()).start();
    await drained(reader, { group, topic: input });
    const { records } = await reader.read(output);
    const counts = [0, 1, 2, 3].map((partition) => records.filter((record) => record.partition === partition).length);
    expect(records).toHaveLength(1_000);
    expect(Math.min(...counts)).toBeGreaterThan(200);
  });
});

describe('without a fault, every guarantee is exact', () => {
  it.each<Guarantee>(['exactly-once', 'at-least-once', 'at-most-once'])('%s, over a restart', async (guarantee) => {
    const { group, input, output } = await names(2);
    await fillInput(client, input, { records: 1_000 });
    const options = { guarantee, commitIntervalMs: 100 };
    const first = application(group, mapped(input, output), options);
    await first.start();
    await vi.waitFor(async () => expect(await lagOf(reader, group, input)).toBeLessThan(1_000n), { timeout: 20_000 });
    await first.close();
    await fillInput(client, input, { records: 500, from: 1_000 });
    const second = application(group, mapped(input, output), options);
    await second.start();
    await drained(reader, { group, topic: input });
    await second.close();
    expect(await judgeKafka(reader, { input, output, group })).toEqual(exactInKafka(1_500));
  });
});

describe('records', () => {
  it('keep their bytes, headers and times', async () => {
    const { group, input, output } = await names(1);
    const producer = client.idempotentProducer();
    await producer.init();
    await producer.loadTopics([input]);
    const value = randomBytes(100_000);
    const timestamp = Date.now() - 1_000;
    producer.append(input, 0, null, value, timestamp, [
      { key: 'twice', value: Buffer.from([1]) },
      { key: 'twice', value: null },
    ]);
    producer.append(input, 0, Buffer.alloc(0), null, timestamp + 1, []);
    await producer.flush();
    await producer.close();
    const builder = new StreamsBuilder();
    builder.stream(input).to(output);
    await application(group, builder.build()).start();
    await drained(reader, { group, topic: input });
    const { records } = await reader.read(output);
    expect(records.map(({ key, value: copied, timestamp: time, headers }) => ({ key, copied, time, headers }))).toEqual([
      {
        key: null,
        copied: value,
        time: timestamp,
        headers: [
          { key: 'twice', value: Buffer.from([1]) },
          { key: 'twice', value: null },
        ],
      },
      { key: Buffer.alloc(0), copied: null, time: timestamp + 1, headers: [] },
    ]);
  });
});
