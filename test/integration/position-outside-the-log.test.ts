/**
 * The committed position lies outside of the log: records were deleted before they were processed, or the topic was created anew. Guards against a
 * gap that nobody is told of.
 */
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { insert, json, postgresSink, string, StreamsBuilder, type Topology } from '../../src/index.ts';
import { ApplicationBench, copyTopology, until } from '../support/application-bench.ts';
import { IndependentReader } from '../support/independent-reader.ts';
import { fillInput, type InputValue } from '../support/input-records.ts';
import { drained, tableStatement } from '../support/judge.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';

/** Processed and committed at first; then written while the application is away; so many of these are deleted; and at the end. */
const DONE = 100;
const MISSED = 100;
const DELETED = 60;
const LATER = 50;

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

interface Place {
  readonly applicationId: string;
  readonly input: string;
  readonly output: string;
}

async function withAdmin<T>(work: (admin: ReturnType<typeof bench.client.admin>) => Promise<T>): Promise<T> {
  const admin = bench.client.admin();
  try {
    return await work(admin);
  } finally {
    await admin.close();
  }
}

/** An application that has done its part and is away, while records come and the oldest are deleted. */
async function prepared(): Promise<Place> {
  const [input, output] = [await bench.topic('in'), await bench.topic('out')];
  const applicationId = bench.name('app');
  await fillInput(bench.client, input, { records: DONE });
  const { application } = bench.application({ applicationId, topology: copyTopology(input, output) });
  await application.start();
  await drained(reader, { group: applicationId, topic: input });
  await application.close();
  await fillInput(bench.client, input, { records: MISSED, from: DONE });
  await withAdmin(async (admin) => await admin.deleteRecords([{ topic: input, partition: 0, offset: BigInt(DONE + DELETED) }]));
  return { applicationId, input, output };
}

async function idsIn(topic: string): Promise<string[]> {
  return (await reader.read(topic)).records.map(({ value }) => (JSON.parse(value?.toString() ?? '') as InputValue).id);
}

function ids(from: number, end: number): string[] {
  return Array.from({ length: end - from }, (_, i) => `record-${from + i}`);
}

describe('a committed offset below the log start', () => {
  it("stops the application under 'error', the default: nothing is processed and the offset stays", async () => {
    const { applicationId, input, output } = await prepared();
    const running = bench.application({ applicationId, topology: copyTopology(input, output) });
    await running.application.start();
    const error = await running.failure();
    expect(error.message).toContain(`the position ${DONE} of ${input}-0 lies outside of its log (${DONE + DELETED} to ${DONE + MISSED})`);
    expect(error.message).toContain('offsetOutOfRange');
    expect(await idsIn(output)).toEqual(ids(0, DONE));
    expect(await reader.groupOffsets(applicationId)).toMatchObject([{ offset: BigInt(DONE) }]);
  });

  it.each([
    { policy: 'earliest', from: DONE + DELETED },
    { policy: 'latest', from: DONE + MISSED },
  ] as const)("goes on under '$policy', and says so", async ({ policy, from }) => {
    const { applicationId, input, output } = await prepared();
    const running = bench.application({ applicationId, topology: copyTopology(input, output), offsetOutOfRange: policy });
    await running.application.start();
    const told = () => running.events.find(({ message }) => message === 'position out of range');
    await until('it is told', () => told() !== undefined);
    expect(told()).toMatchObject({ level: 'warn', fields: { topic: input, partition: 0, position: `${DONE}`, goesOnAt: `${from}` } });
    await fillInput(bench.client, input, { records: LATER, from: DONE + MISSED });
    await drained(reader, { group: applicationId, topic: input });
    expect(await idsIn(output)).toEqual([...ids(0, DONE), ...ids(from, DONE + MISSED + LATER)]);
  });
});

describe('a position in the database behind the end of the topic, which was created anew', () => {
  it('stops the sink and says where it stands and where the log ends', async () => {
    const table = bench.name('t').replace('-', '_');
    await database.query(tableStatement(table));
    const input = await bench.topic('in');
    const applicationId = bench.name('app');
    await fillInput(bench.client, input, { records: DONE });
    const first = bench.application({ applicationId, topology: toTable(input, table) });
    await first.application.start();
    await until('all rows', async () => (await rows(table)) === DONE);
    await first.application.close();

    await withAdmin(async (admin) => await admin.deleteTopics([input]));
    await until('the topic is gone', async () => await withAdmin(async (admin) => !(await admin.partitionCounts([input])).has(input)));
    await bench.create(input);
    await fillInput(bench.client, input, { records: DELETED, from: DONE });
    const second = bench.application({ applicationId, topology: toTable(input, table) });
    await second.application.start();
    const error = await second.failure();
    expect(error.message).toContain(`${input}-0`);
    expect(error.message).toContain(String(DONE));
    expect(error.message).toContain(String(DELETED));
    expect(await rows(table)).toBe(DONE);
  });
});

function toTable(input: string, table: string): Topology {
  const builder = new StreamsBuilder();
  const effect = insert<string, InputValue>({ table, columns: { id: 'id', key: 'key', n: 'n' } });
  builder
    .stream(input, { key: string(), value: json<InputValue>() })
    .sink(postgresSink({ connection: database.url, effect }), { name: 'rows' });
  return builder.build();
}

async function rows(table: string): Promise<number> {
  return Number((await database.query<{ rows: string }>(`SELECT count(*) AS rows FROM ${table}`))[0]?.rows);
}
