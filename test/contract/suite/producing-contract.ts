import { afterEach, describe, expect, it } from 'vitest';
import type { Compression } from '../../../src/kafka/port.ts';
import { FatalError, RecordTooLargeError, RetriableError } from '../../../src/model/errors.ts';
import { NO_HEADERS } from '../../../src/model/headers.ts';
import { appendAll, readLog, readValues } from './log.ts';
import { Closing, KEPT, unique, type Subject } from './subject.ts';

/** Kafka's codes, as the protocol guide numbers them. */
const NOT_LEADER_OR_FOLLOWER = 6;

export function producingContract(subject: () => Subject): void {
  describe('IdempotentProducer and LogReader', () => {
    const closing = new Closing();
    afterEach(() => closing.closeAll());

    async function topicOf(partitions = 1, configs: Record<string, string> = {}): Promise<string> {
      const topic = unique('produced');
      await closing.add(subject().client.admin()).createTopics([{ topic, partitions, configs: { ...KEPT, ...configs } }]);
      return topic;
    }

    async function producerFor(topic: string, options: Parameters<Subject['client']['idempotentProducer']>[0] = {}) {
      const producer = closing.add(subject().client.idempotentProducer(options));
      await producer.init();
      await producer.loadTopics([topic]);
      return producer;
    }

    it('keeps keys, values, headers and times as they are, null and empty ones too', async () => {
      const topic = await topicOf();
      const producer = await producerFor(topic);
      const headers = [
        { key: 'h', value: Buffer.from('1') },
        { key: 'h', value: null },
        { key: '', value: Buffer.alloc(0) },
      ];
      producer.append(topic, 0, null, null, 1_000, NO_HEADERS);
      producer.append(topic, 0, '', '', 3_000, headers);
      producer.append(topic, 0, Buffer.from([0, 255]), 'Grüße 😀', 2_000, NO_HEADERS);
      await producer.flush();
      const records = (await readLog(subject().client, topic)).map(({ offset, timestamp, key, value, headers: got }) => ({
        offset,
        timestamp,
        key,
        value,
        headers: got,
      }));
      expect(records).toEqual([
        { offset: 0n, timestamp: 1_000, key: null, value: null, headers: [] },
        { offset: 1n, timestamp: 3_000, key: Buffer.alloc(0), value: Buffer.alloc(0), headers },
        { offset: 2n, timestamp: 2_000, key: Buffer.from([0, 255]), value: Buffer.from('Grüße 😀'), headers: [] },
      ]);
    });

    it.each<Compression>(['none', 'gzip', 'snappy', 'lz4'])('writes and reads %s', async (compression) => {
      const topic = await topicOf();
      const producer = await producerFor(topic, { compression });
      const values = Array.from({ length: 500 }, (_, i) => `value ${i} ${'x'.repeat(100)}`);
      appendAll(producer, topic, values);
      await producer.flush();
      expect(await readValues(subject().client, topic)).toEqual(values);
    });

    it('keeps the order of each partition over many batches in flight', async () => {
      const topic = await topicOf(3);
      const producer = await producerFor(topic, { batchBytes: 2_000 });
      for (let i = 0; i < 3_000; i++) {
        producer.append(topic, i % 3, null, `${i}`, 1_000, NO_HEADERS);
        if (i % 100 === 0) await producer.ready();
      }
      await producer.flush();
      expect(producer.bufferedBytes).toBe(0);
      const records = await readLog(subject().client, topic);
      for (let partition = 0; partition < 3; partition++) {
        const numbers = records.filter((record) => record.partition === partition).map(({ value }) => Number(value));
        expect(numbers).toEqual(Array.from({ length: 1_000 }, (_, i) => i * 3 + partition));
      }
    });

    it('refuses a record that no batch of the topic can hold, before anything is sent, and goes on', async () => {
      const topic = await topicOf(1, { 'max.message.bytes': '20000' });
      const producer = await producerFor(topic);
      const limit = producer.maxRecordBytes(topic);
      expect(() => producer.append(topic, 0, null, 'x'.repeat(20_001), 1_000, NO_HEADERS)).toThrow(RecordTooLargeError);
      const overhead = producer.recordBytes(null, 'x'.repeat(limit - 200), NO_HEADERS) - (limit - 200);
      const largest = 'x'.repeat(limit - overhead);
      expect(producer.recordBytes(null, largest, NO_HEADERS)).toBe(limit);
      expect(() => producer.append(topic, 0, null, `${largest}x`, 1_000, NO_HEADERS)).toThrow(RecordTooLargeError);
      producer.append(topic, 0, null, largest, 1_000, NO_HEADERS);
      await producer.flush();
      expect(await readValues(subject().client, topic)).toEqual([largest]);
    });

    it('names a topic that does not exist, and a partition', async () => {
      const topic = await topicOf();
      const producer = await producerFor(topic);
      const absent = unique('absent');
      expect(producer.partitionCount(topic)).toBe(1);
      expect(producer.partitionCount(absent)).toBeUndefined();
      await expect(producer.loadTopics([absent])).rejects.toThrow(FatalError);
      await expect(producer.loadTopics([absent])).rejects.toThrow(absent);
      expect(() => producer.append(topic, 5, null, 'x', 1_000, NO_HEADERS)).toThrow(FatalError);
    });

    it.each(['loseAnswer', 'loseRequest'] as const)('writes each record once, in order, when a Produce meets %s', async (fault) => {
      const topic = await topicOf();
      const disturbed = closing.add(await subject().disturbed());
      const producer = closing.add(disturbed.client.idempotentProducer({ batchBytes: 1_000 }));
      await producer.init();
      await producer.loadTopics([topic]);
      const lost = disturbed.faults[fault]('Produce');
      const values = Array.from({ length: 500 }, (_, i) => `${i}`);
      appendAll(producer, topic, values);
      await producer.flush();
      expect(lost.fired).toBe(1);
      expect(await readValues(subject().client, topic)).toEqual(values);
    });

    it('writes each record once, in order, when the leader moves', async () => {
      const topic = await topicOf();
      const disturbed = closing.add(await subject().disturbed());
      const producer = closing.add(disturbed.client.idempotentProducer({ batchBytes: 1_000 }));
      await producer.init();
      await producer.loadTopics([topic]);
      const moved = disturbed.faults.refuse('Produce', NOT_LEADER_OR_FOLLOWER);
      const values = Array.from({ length: 500 }, (_, i) => `${i}`);
      appendAll(producer, topic, values);
      await producer.flush();
      expect(moved.fired).toBe(1);
      expect(await readValues(subject().client, topic)).toEqual(values);
    });

    it('fails within the delivery timeout when no broker can be reached, and works again after init', async () => {
      const topic = await topicOf();
      const disturbed = closing.add(await subject().disturbed());
      const producer = closing.add(disturbed.client.idempotentProducer({ deliveryTimeoutMs: 1_500, requestTimeoutMs: 500 }));
      await producer.init();
      await producer.loadTopics([topic]);
      appendAll(producer, topic, ['before']);
      await producer.flush();
      disturbed.faults.partition();
      appendAll(producer, topic, ['lost']);
      await expect(producer.flush()).rejects.toThrow(RetriableError);
      disturbed.faults.heal();
      await producer.init();
      appendAll(producer, topic, ['after']);
      await producer.flush();
      const values = await readValues(subject().client, topic);
      expect([
        ['before', 'after'],
        ['before', 'lost', 'after'],
      ]).toContainEqual(values);
    });
  });

  describe('LogReader', () => {
    const closing = new Closing();
    afterEach(() => closing.closeAll());

    it('says where the log begins and ends when a position lies outside', async () => {
      const topic = unique('outside');
      const admin = closing.add(subject().client.admin());
      await admin.createTopics([{ topic, partitions: 1, configs: KEPT }]);
      const producer = closing.add(subject().client.idempotentProducer());
      await producer.init();
      await producer.loadTopics([topic]);
      appendAll(producer, topic, ['a', 'b', 'c']);
      await producer.flush();
      await admin.deleteRecords([{ topic, partition: 0, offset: 2n }]);
      const reader = closing.add(subject().client.logReader());
      reader.startFrom([{ topic, partition: 0, offset: 1n }]);
      const outcome = (async () => {
        for (let i = 0; i < 20; i++) await reader.poll(200);
      })();
      await expect(outcome).rejects.toThrow(FatalError);
      await expect(outcome).rejects.toThrow(/2.*3|3.*2/s);
    });

    it('delivers nothing of an older start after startFrom, and nothing after stop', async () => {
      const topic = unique('moved');
      await closing.add(subject().client.admin()).createTopics([{ topic, partitions: 1, configs: KEPT }]);
      const producer = closing.add(subject().client.idempotentProducer({ batchBytes: 200 }));
      await producer.init();
      await producer.loadTopics([topic]);
      appendAll(
        producer,
        topic,
        Array.from({ length: 200 }, (_, i) => `${i}`),
      );
      await producer.flush();
      const reader = closing.add(subject().client.logReader({ fetch: { maxPartitionBytes: 300 } }));
      const partition = { topic, partition: 0 };
      reader.startFrom([{ ...partition, offset: 0n }]);
      await expect.poll(() => reader.poll(200)).not.toEqual([]);
      reader.startFrom([{ ...partition, offset: 150n }]);
      const [batch] = await pollBatches(() => reader.poll(500));
      expect(batch?.records.next()?.offset).toBe(150n);
      reader.stop([partition]);
      expect(await reader.poll(300)).toEqual([]);
    });
  });
}

async function pollBatches<T>(poll: () => Promise<readonly T[]>): Promise<readonly T[]> {
  for (let attempt = 0; attempt < 20; attempt++) {
    const batches = await poll();
    if (batches.length > 0) return batches;
  }
  throw new Error('no batch came');
}
