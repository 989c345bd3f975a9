/**
 * Topics that come, grow or are missing, and records that must pass unchanged. Guards against a new topic or partition that nobody reads, a
 * misspelt name that shows as silence, and an application that never reaches the end of a transactional topic.
 */
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { Kafka, logLevel } from 'kafkajs';
import { string, StreamsBuilder, textHeader, type Topology } from '../../src/index.ts';
import { ApplicationBench, copyTopology, type RunningApplication } from '../support/application-bench.ts';
import { IndependentReader } from '../support/independent-reader.ts';
import { fillInput } from '../support/input-records.ts';
import { drained, exactInKafka, judgeKafka, lagOf } from '../support/judge.ts';

let bench: ApplicationBench;
let reader: IndependentReader;

beforeAll(async () => {
  bench = await ApplicationBench.open(inject('kafkaBrokers'));
  reader = await IndependentReader.open({ brokers: inject('kafkaBrokers'), jars: inject('kafkaJars') });
});

afterAll(async () => {
  await bench.close();
  await reader.close();
});

function alive({ application, events }: RunningApplication): () => void {
  return () => {
    if (application.state === 'failed') throw new Error(JSON.stringify(events));
  };
}

async function idsIn(topic: string): Promise<string[]> {
  return (await reader.read(topic)).records.map(({ value }) => (JSON.parse(value?.toString() ?? '') as { id: string }).id);
}

describe('while the application runs', () => {
  it('a new topic that its pattern matches is read from the beginning', async () => {
    const prefix = bench.name('shop');
    const output = await bench.topic('out');
    const [first, second] = [`${prefix}-orders`, `${prefix}-returns`];
    await bench.create(first);
    await fillInput(bench.client, first, { records: 50 });
    const builder = new StreamsBuilder();
    builder.stream(new RegExp(`^${prefix}-[a-z]+$`)).to(output);
    const applicationId = bench.name('app');
    const running = bench.application({ applicationId, topology: builder.build(), metadataMaxAgeMs: 500 });
    await running.application.start();
    await drained(reader, { group: applicationId, topic: first }, { check: alive(running) });

    await bench.create(second);
    // Written before the application can know of the topic.
    await fillInput(bench.client, second, { records: 50, from: 50 });
    await drained(reader, { group: applicationId, topic: second }, { check: alive(running) });
    await running.application.close();
    expect((await idsIn(output)).toSorted()).toEqual(Array.from({ length: 100 }, (_, i) => `record-${i}`).toSorted());
  });

  it('new partitions of its input are read from the beginning, and the old ones go on', async () => {
    const [input, output] = [await bench.topic('in', 1), await bench.topic('out', 3)];
    await fillInput(bench.client, input, { records: 300 });
    const applicationId = bench.name('app');
    const running = bench.application({ applicationId, topology: copyTopology(input, output), metadataMaxAgeMs: 500 });
    await running.application.start();
    await drained(reader, { group: applicationId, topic: input }, { check: alive(running) });

    const admin = new Kafka({ brokers: inject('kafkaBrokers').split(','), logLevel: logLevel.NOTHING }).admin();
    await admin.connect();
    try {
      await admin.createPartitions({ topicPartitions: [{ topic: input, count: 3 }] });
    } finally {
      await admin.disconnect();
    }
    await fillInput(bench.client, input, { records: 300, from: 300 });
    expect((await reader.ends(input)).every(({ highWatermark }) => highWatermark > 0n)).toBe(true);
    await drained(reader, { group: applicationId, topic: input }, { check: alive(running) });
    await running.application.close();
    // A key may have moved to another partition, between which there is no order.
    expect({ ...(await judgeKafka(reader, { input, output, group: applicationId })), outOfOrder: [] }).toEqual(exactInKafka(600));
  });
});

describe('a topic that does not exist', () => {
  it('as the input, ends the start with an error that names it', async () => {
    const [input, output] = [bench.name('missing'), await bench.topic('out')];
    const { application } = bench.application({ applicationId: bench.name('app'), topology: copyTopology(input, output) });
    await expect(application.start()).rejects.toThrow(`needs topics that do not exist: ${input}.`);
    expect(application.state).toBe('failed');
  });

  it('as the output, ends the start with an error that names it', async () => {
    const [input, output] = [await bench.topic('in'), bench.name('missing')];
    const { application } = bench.application({ applicationId: bench.name('app'), topology: copyTopology(input, output) });
    await expect(application.start()).rejects.toThrow(`needs topics that do not exist: ${output}.`);
  });

  it('as a computed output, stops at the record that is meant for it, and names both', async () => {
    const [input, output, missing] = [await bench.topic('in'), await bench.topic('out'), bench.name('missing')];
    await fillInput(bench.client, input, { records: 20 });
    const builder = new StreamsBuilder();
    builder.stream(input, { key: string(), value: string() }).to((value) => (value.includes('"record-7"') ? missing : output));
    const applicationId = bench.name('app');
    const running = bench.application({ applicationId, topology: builder.build() });
    await running.application.start();
    const error = await running.failure();
    expect(error).toMatchObject({ code: 'POISON_RECORD', failure: { kind: 'output', offset: 7n } });
    expect(error.message).toContain(missing);
    expect(error.message).toContain(`${input}-0@7`);
    expect(await idsIn(output)).toEqual(Array.from({ length: 7 }, (_, i) => `record-${i}`));
    expect(await reader.groupOffsets(applicationId)).toMatchObject([{ offset: 7n }]);
  });
});

describe('a record passes unchanged', () => {
  it('with null keys, null values, empty ones, bytes that are no text, its headers and its time', async () => {
    const [input, output] = [await bench.topic('in'), await bench.topic('out')];
    const producer = bench.client.idempotentProducer();
    const bytes = Buffer.from([0, 0xff, 0xfe, 0x80]);
    const now = Date.now();
    try {
      await producer.init();
      await producer.loadTopics([input]);
      const headers = [textHeader('same', 'one'), { key: 'same', value: bytes }, { key: 'null', value: null }, textHeader('', 'no name')];
      const payloads = [null, Buffer.alloc(0), bytes, Buffer.from('text')];
      for (const [i, key] of payloads.entries()) {
        for (const [j, value] of payloads.entries())
          producer.append(input, 0, key, value, now + 10 * i - j, (i + j) % 2 === 0 ? headers : []);
      }
      await producer.flush();
    } finally {
      await producer.close();
    }
    const applicationId = bench.name('app');
    const running = bench.application({ applicationId, topology: passing(input, output) });
    await running.application.start();
    await drained(reader, { group: applicationId, topic: input }, { check: alive(running) });
    const [before, after] = [await reader.read(input), await reader.read(output)];
    expect(before.records).toHaveLength(16);
    expect(after.records.map(({ key, value, headers, timestamp }) => ({ key, value, headers, timestamp }))).toEqual(
      before.records.map(({ key, value, headers, timestamp }) => ({ key, value, headers, timestamp })),
    );
  });
});

describe('an idle application', () => {
  it('arrives at the end of a topic that ends with a marker, and with an aborted transaction', async () => {
    const [input, output] = [await bench.topic('in'), await bench.topic('out')];
    const producer = bench.client.transactionalProducer({ transactionalId: bench.name('txn') });
    try {
      await producer.init();
      await producer.loadTopics([input]);
      for (const [index, end] of (['commit', 'abort', 'commit', 'abort'] as const).entries()) {
        producer.begin();
        producer.append(input, 0, null, `${index} ${end}`, Date.now(), []);
        await producer.flush();
        await producer[end]();
      }
    } finally {
      await producer.close();
    }
    const applicationId = bench.name('app');
    const running = bench.application({ applicationId, topology: passing(input, output) });
    await running.application.start();
    await drained(reader, { group: applicationId, topic: input }, { check: alive(running) });
    expect((await reader.read(output)).records.map(({ value }) => value?.toString())).toEqual(['0 commit', '2 commit']);

    // Once there, it has nothing to commit any more: two markers and two records, and no transaction after them.
    const ends = await reader.ends(output);
    await running.application.close();
    expect(await reader.ends(output)).toEqual(ends);
    expect(await lagOf(reader, applicationId, input)).toBe(0n);
  });
});

function passing(input: string, output: string): Topology {
  const builder = new StreamsBuilder();
  builder.stream(input).to(output);
  return builder.build();
}
