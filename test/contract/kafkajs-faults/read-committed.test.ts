import type { Producer, Transaction } from 'kafkajs';
import { afterAll, afterEach, beforeAll, describe, expect, inject, it } from 'vitest';
import { kafkaClient } from '../../../src/kafka/kafkajs/client.ts';
import type { KafkaClient } from '../../../src/kafka/port.ts';
import { NO_HEADERS } from '../../../src/model/headers.ts';
import { bounds, readLog, valuesOf } from '../suite/log.ts';
import { Closing, KEPT, unique } from '../suite/subject.ts';
import { plainKafka, plainTransactionalProducer, readWithKafkaJs } from './plain.ts';

/** Each of these shows a fault of plain kafkajs 2.2.4 and that this client, on the same log, does not have it. */
describe('read-committed reading beside plain kafkajs', () => {
  const brokers = inject('kafkaBrokers');
  const kafka = plainKafka(brokers);
  const client: KafkaClient = kafkaClient({ brokers: brokers.split(',') });
  const closing = new Closing();
  let a: Producer;
  let b: Producer;

  beforeAll(async () => {
    a = await plainTransactionalProducer(kafka, unique('a'));
    b = await plainTransactionalProducer(kafka, unique('b'));
  });
  afterAll(async () => {
    await Promise.all([a.disconnect(), b.disconnect()]);
  });
  afterEach(() => closing.closeAll());

  async function topicOf(configs: Record<string, string> = {}): Promise<string> {
    const topic = unique('faults');
    await closing.add(client.admin()).createTopics([{ topic, partitions: 1, configs: { ...KEPT, ...configs } }]);
    return topic;
  }

  async function send(transaction: Transaction, topic: string, value: string, key: Buffer | null = null): Promise<void> {
    await transaction.send({ topic, messages: [{ key, value, partition: 0 }] });
  }

  /** An abort is answered before its marker is written, and the order of the markers is what a test is about. */
  async function markerAt(topic: string, offset: bigint): Promise<void> {
    await expect.poll(() => bounds(client, topic).then((log) => log.highWatermark)).toBe(offset + 1n);
  }

  /** Both clients read the same stable log from the same position. */
  async function readBoth(topic: string, from = 0n): Promise<{ plain: string[]; ours: (string | null)[]; plainReachedEnd: boolean }> {
    await expect.poll(() => bounds(client, topic).then((log) => log.highWatermark - log.lastStable)).toBe(0n);
    const { highWatermark } = await bounds(client, topic);
    const plain = await readWithKafkaJs(kafka, topic, { groupId: unique('plain'), from, end: highWatermark });
    const ours = await readLog(client, topic, { from: [{ topic, partition: 0, offset: from }] });
    return { plain: plain.messages.map(({ value }) => String(value)), ours: valuesOf(ours), plainReachedEnd: plain.reachedEnd };
  }

  it('S1: a fetch that begins inside two aborted transactions', async () => {
    const topic = await topicOf();
    const [ta, tb] = [await a.transaction(), await b.transaction()];
    await send(ta, topic, 'a0');
    await send(tb, topic, 'b1');
    await send(tb, topic, 'b2');
    await send(ta, topic, 'a3');
    await ta.abort();
    await markerAt(topic, 4n);
    await tb.abort();
    await markerAt(topic, 5n);
    const last = await a.transaction();
    await send(last, topic, 'kept');
    await last.commit();
    const { plain, ours } = await readBoth(topic, 2n);
    expect(plain).toEqual(['b2', 'kept']);
    expect(ours).toEqual(['kept']);
  });

  it('S2: aborted transactions that the broker lists in the order of their ends', async () => {
    const topic = await topicOf();
    const [ta, tb] = [await a.transaction(), await b.transaction()];
    await send(ta, topic, 'a0');
    await send(tb, topic, 'b1');
    await tb.abort();
    await markerAt(topic, 2n);
    await ta.abort();
    await markerAt(topic, 3n);
    const last = await a.transaction();
    await send(last, topic, 'kept');
    await last.commit();
    const { plain, ours } = await readBoth(topic);
    expect(plain).toContain('a0');
    expect(ours).toEqual(['kept']);
  });

  it('S3: a key of four zero bytes in an aborted transaction', async () => {
    const topic = await topicOf();
    const aborted = await a.transaction();
    await send(aborted, topic, 'x', Buffer.from([0, 0, 0, 0]));
    await send(aborted, topic, 'y', Buffer.from('key'));
    await send(aborted, topic, 'z');
    await aborted.abort();
    const { plain, ours } = await readBoth(topic);
    expect(plain).toEqual(['x', 'y', 'z']);
    expect(ours).toEqual([]);
  });

  it('S15: a log that ends in aborted records and markers only', async () => {
    const topic = await topicOf();
    const aborted = await a.transaction();
    await send(aborted, topic, 'dropped');
    await aborted.abort();
    await expect.poll(() => bounds(client, topic).then((log) => log.lastStable)).toBe(2n);
    // Nothing but an instrumentation event tells a user of kafkajs that the position is 2.
    const consumer = kafka.consumer({ groupId: unique('plain'), maxWaitTimeInMs: 50 });
    let handed = 0;
    const passed = new Promise<string>((resolve) => {
      consumer.on(consumer.events.END_BATCH_PROCESS, ({ payload }) => resolve(payload.lastOffset));
    });
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    await consumer.run({ autoCommit: false, eachBatch: async () => void handed++ });
    expect(await passed).toBe('1');
    expect(handed).toBe(0);
    await consumer.disconnect();

    const reader = closing.add(client.logReader({ fetch: { maxWaitMs: 50 } }));
    reader.startFrom([{ topic, partition: 0, offset: 0n }]);
    const batches = await pollBatches(() => reader.poll(1_000));
    expect(batches.at(-1)?.nextOffset).toBe(2n);
    expect(batches.every((batch) => batch.records.next() === undefined)).toBe(true);
  });

  it('a batch of 300,000 small records', { timeout: 90_000 }, async () => {
    const count = 300_000;
    const topic = await topicOf({ 'max.message.bytes': String(16 << 20) });
    const producer = closing.add(client.idempotentProducer({ batchBytes: 16 << 20 }));
    await producer.init();
    await producer.loadTopics([topic]);
    for (let i = 0; i < count; i++) producer.append(topic, 0, null, 'v', 1_000, NO_HEADERS);
    await producer.flush();
    expect(await readLog(client, topic)).toHaveLength(count);

    const consumer = kafka.consumer({ groupId: unique('plain'), maxWaitTimeInMs: 50, maxBytesPerPartition: 16 << 20, maxBytes: 16 << 20 });
    const crashed = new Promise<Error>((resolve) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => resolve(payload.error));
    });
    let handed = 0;
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    await consumer.run({ autoCommit: false, eachBatch: async ({ batch }) => void (handed += batch.messages.length) });
    expect(String(await crashed)).toMatch(/Maximum call stack/);
    expect(handed).toBe(0);
    await consumer.disconnect();
  });
});

async function pollBatches<T>(poll: () => Promise<readonly T[]>): Promise<readonly T[]> {
  for (let attempt = 0; attempt < 20; attempt++) {
    const batches = await poll();
    if (batches.length > 0) return batches;
  }
  throw new Error('no batch came');
}
