import { afterEach, describe, expect, it } from 'vitest';
import type { FetchedBatch, TransactionalProducer } from '../../../src/kafka/port.ts';
import { NO_HEADERS } from '../../../src/model/headers.ts';
import { appendAll, bounds, readLog, readValues, valuesOf } from './log.ts';
import { Closing, KEPT, unique, type Subject } from './subject.ts';

export function readingContract(subject: () => Subject): void {
  describe('read-committed reading', () => {
    const closing = new Closing();
    afterEach(() => closing.closeAll());

    async function topicOf(): Promise<string> {
      const topic = unique('read');
      await closing.add(subject().client.admin()).createTopics([{ topic, partitions: 1, configs: KEPT }]);
      return topic;
    }

    async function producers(topic: string, count: number): Promise<TransactionalProducer[]> {
      return await Promise.all(
        Array.from({ length: count }, async () => {
          const producer = closing.add(subject().client.transactionalProducer({ transactionalId: unique('txn') }));
          await producer.init();
          await producer.loadTopics([topic]);
          return producer;
        }),
      );
    }

    async function write(producer: TransactionalProducer, topic: string, value: string, key: Buffer | null = null): Promise<void> {
      if (!producer.inTransaction) producer.begin();
      producer.append(topic, 0, key, value, 1_000, NO_HEADERS);
      await producer.flush();
    }

    async function settled(topic: string): Promise<bigint> {
      await expect.poll(() => bounds(subject().client, topic).then((log) => log.highWatermark - log.lastStable)).toBe(0n);
      return (await bounds(subject().client, topic)).highWatermark;
    }

    it('hides aborted records wherever a fetch begins, however small it is, in overlapping transactions that end in any order', async () => {
      const topic = await topicOf();
      const [a, b, c, d] = (await producers(topic, 4)) as [
        TransactionalProducer,
        TransactionalProducer,
        TransactionalProducer,
        TransactionalProducer,
      ];
      await write(a, topic, 'a0 aborted');
      await write(b, topic, 'b1 aborted');
      await write(c, topic, 'c2');
      await write(b, topic, 'b3 aborted');
      await write(d, topic, 'd4 aborted');
      await write(a, topic, 'a5 aborted');
      // The first to begin is the last to end, and d's next transaction begins while a's is open.
      await d.abort();
      await b.abort();
      await write(d, topic, 'd8');
      await c.commit();
      await a.abort();
      await d.commit();
      const end = await settled(topic);
      const expected = await readLog(subject().client, topic);
      expect(valuesOf(expected)).toEqual(['c2', 'd8']);
      for (let from = 0n; from < end; from++) {
        for (const maxPartitionBytes of [1, 200, 1 << 20]) {
          const records = await readLog(subject().client, topic, {
            from: [{ topic, partition: 0, offset: from }],
            fetch: { maxPartitionBytes, maxWaitMs: 10 },
          });
          expect(valuesOf(records)).toEqual(valuesOf(expected.filter(({ offset }) => offset >= from)));
        }
      }
    });

    it('takes no key for an abort marker, whatever its bytes', async () => {
      const topic = await topicOf();
      const [producer] = (await producers(topic, 1)) as [TransactionalProducer];
      await write(producer, topic, 'x', Buffer.from([0, 0, 0, 0]));
      await write(producer, topic, 'y', Buffer.from([0, 0, 0, 1]));
      await write(producer, topic, 'z');
      await producer.abort();
      await write(producer, topic, 'kept', Buffer.from([0, 0, 0, 0]));
      await producer.commit();
      await settled(topic);
      expect(await readValues(subject().client, topic)).toEqual(['kept']);
      expect(await readValues(subject().client, topic, { isolation: 'read-uncommitted' })).toEqual(['x', 'y', 'z', 'kept']);
    });

    it('passes over a log that ends in aborted records and markers', async () => {
      const topic = await topicOf();
      const [producer] = (await producers(topic, 1)) as [TransactionalProducer];
      await write(producer, topic, 'kept');
      await producer.commit();
      for (let i = 0; i < 5; i++) {
        await write(producer, topic, `dropped ${i}`);
        await producer.abort();
      }
      const end = await settled(topic);
      const reader = closing.add(subject().client.logReader({ fetch: { maxPartitionBytes: 1, maxWaitMs: 10 } }));
      reader.startFrom([{ topic, partition: 0, offset: 0n }]);
      const batches: FetchedBatch[] = [];
      await expect
        .poll(async () => {
          batches.push(...(await reader.poll(100)));
          return batches.at(-1)?.nextOffset;
        })
        .toBe(end);
      const offsets = batches.map(({ nextOffset }) => nextOffset);
      expect(offsets).toEqual(offsets.toSorted((x, y) => (x < y ? -1 : 1)));
    });

    it('stops at the last stable offset, and goes on when the transaction has ended', async () => {
      const topic = await topicOf();
      const [open, other] = (await producers(topic, 2)) as [TransactionalProducer, TransactionalProducer];
      await write(open, topic, 'open');
      await write(other, topic, 'behind');
      await other.commit();
      const reader = closing.add(subject().client.logReader({ fetch: { maxWaitMs: 50 } }));
      reader.startFrom([{ topic, partition: 0, offset: 0n }]);
      const values: (string | null)[] = [];
      const poll = async (): Promise<typeof values> => {
        for (const batch of await reader.poll(200)) {
          for (let record = batch.records.next(); record !== undefined; record = batch.records.next()) values.push(...valuesOf([record]));
        }
        return values;
      };
      for (let i = 0; i < 3; i++) expect(await poll()).toEqual([]);
      await open.commit();
      await expect.poll(poll).toEqual(['open', 'behind']);
    });

    it('reads an aborted transaction that is longer than many fetches', async () => {
      const topic = await topicOf();
      const [long, short] = (await producers(topic, 2)) as [TransactionalProducer, TransactionalProducer];
      const kept: string[] = [];
      for (let i = 0; i < 30; i++) {
        await write(long, topic, `dropped ${i} ${'x'.repeat(500)}`);
        if (i % 5 === 0) {
          kept.push(`kept ${i}`);
          await write(short, topic, `kept ${i}`);
          await short.commit();
        }
      }
      await long.abort();
      await settled(topic);
      expect(await readValues(subject().client, topic, { maxPartitionBytes: 700, maxWaitMs: 10 })).toEqual(kept);
    });

    it('bounds what it holds: nothing more is fetched while enough waits to be polled', async () => {
      const topic = await topicOf();
      const producer = closing.add(subject().client.idempotentProducer());
      await producer.init();
      await producer.loadTopics([topic]);
      const values = Array.from({ length: 400 }, (_, i) => `${i} ${'x'.repeat(1_000)}`);
      appendAll(producer, topic, values);
      await producer.flush();
      expect(await readValues(subject().client, topic, { maxBufferedBytes: 1, maxPartitionBytes: 5_000, maxWaitMs: 10 })).toEqual(values);
    });
  });
}
