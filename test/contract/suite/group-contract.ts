import { afterEach, describe, expect, it } from 'vitest';
import type { GroupConsumer, GroupConsumerOptions } from '../../../src/kafka/port.ts';
import { FatalError, StaleGenerationError } from '../../../src/model/errors.ts';
import { topicPartitionKey, type TopicPartition } from '../../../src/model/topic-partition.ts';
import { dealingAssignor, joinAndStart, nextEvent, pollUntil, readRecords } from './group.ts';
import { appendAll, valuesOf } from './log.ts';
import { Closing, KEPT, unique, type Subject } from './subject.ts';

/** Kafka's codes, as the protocol guide numbers them. */
const NOT_COORDINATOR = 16;
const NOT_LEADER_OR_FOLLOWER = 6;

export function groupContract(subject: () => Subject): void {
  describe('GroupConsumer', () => {
    const closing = new Closing();
    afterEach(() => closing.closeAll());

    async function topicOf(partitions: number, values: readonly string[] = [], name = unique('grouped')): Promise<string> {
      await closing.add(subject().client.admin()).createTopics([{ topic: name, partitions, configs: KEPT }]);
      await write(name, values);
      return name;
    }

    async function write(topic: string, values: readonly string[], partition = 0): Promise<void> {
      if (values.length === 0) return;
      const producer = closing.add(subject().client.idempotentProducer());
      await producer.init();
      await producer.loadTopics([topic]);
      appendAll(producer, topic, values, partition);
      await producer.flush();
    }

    function consumerOf(
      topic: string,
      groupId: string,
      options: Partial<GroupConsumerOptions> = {},
      client = subject().client,
    ): GroupConsumer {
      return closing.add(
        client.groupConsumer({
          groupId,
          subscription: { topics: [topic] },
          assignor: dealingAssignor(),
          heartbeatIntervalMs: 200,
          fetch: { maxWaitMs: 50 },
          ...options,
        }),
      );
    }

    const keys = (partitions: readonly TopicPartition[]): string[] =>
      partitions.map(({ topic, partition }) => topicPartitionKey(topic, partition)).toSorted();

    it('assigns every partition, and delivers nothing before startFrom', async () => {
      const topic = await topicOf(2, ['a', 'b']);
      const consumer = consumerOf(topic, unique('group'));
      const assigned = await nextEvent(consumer, 'assigned');
      expect(keys(assigned.partitions)).toEqual([`${topic}/0`, `${topic}/1`]);
      expect(assigned.retained).toEqual([]);
      for (let i = 0; i < 4; i++) expect(await consumer.poll(100)).toEqual([]);
      expect(await consumer.committed(assigned.partitions)).toEqual([]);
      expect(await consumer.logOffsets(assigned.partitions)).toEqual(
        new Map([
          [`${topic}/0`, { start: 0n, end: 2n }],
          [`${topic}/1`, { start: 0n, end: 0n }],
        ]),
      );
      consumer.startFrom({ topic, partition: 0 }, 1n);
      expect(valuesOf(await readRecords(consumer, 1))).toEqual(['b']);
    });

    it('goes on from the committed offset in the next life', async () => {
      const topic = await topicOf(1, ['a', 'b', 'c']);
      const groupId = unique('group');
      const first = consumerOf(topic, groupId);
      await joinAndStart(first);
      expect(valuesOf(await readRecords(first, 3))).toEqual(['a', 'b', 'c']);
      await first.commit([{ topic, partition: 0, offset: 2n, metadata: 'note' }]);
      await first.close();
      const second = consumerOf(topic, groupId);
      await joinAndStart(second);
      expect(await second.committed([{ topic, partition: 0 }])).toEqual([{ topic, partition: 0, offset: 2n, metadata: 'note' }]);
      expect(valuesOf(await readRecords(second, 1))).toEqual(['c']);
    });

    it('is still the owner between revoked and the next poll, and shares the partitions after it', async () => {
      const topic = await topicOf(2, ['a']);
      const groupId = unique('group');
      const first = consumerOf(topic, groupId);
      await joinAndStart(first);
      const second = consumerOf(topic, groupId);
      const secondAssigned = nextEvent(second, 'assigned');
      const revoked = await nextEvent(first, 'revoked');
      expect(keys(revoked.partitions)).toEqual([`${topic}/0`, `${topic}/1`]);
      await first.commit([{ topic, partition: 0, offset: 1n }]);
      const assigned = await nextEvent(first, 'assigned');
      const other = await secondAssigned;
      expect(assigned.partitions).toHaveLength(1);
      expect(keys([...assigned.partitions, ...other.partitions])).toEqual([`${topic}/0`, `${topic}/1`]);
      expect(assigned.generation).toBe(other.generation);
      expect(keys(assigned.retained)).toEqual(keys(assigned.partitions));
      expect((await second.committed([{ topic, partition: 0 }]))[0]?.offset).toBe(1n);
    });

    it('leaves at once on close, so that the others need not wait for the session to end', async () => {
      const topic = await topicOf(2);
      const groupId = unique('group');
      const first = consumerOf(topic, groupId, { sessionTimeoutMs: 30_000 });
      const second = consumerOf(topic, groupId, { sessionTimeoutMs: 30_000 });
      await Promise.all([joinAndStart(first), joinAndStart(second)]);
      const started = performance.now();
      await first.close();
      await pollUntil(second, (events) => events.some((event) => event.type === 'assigned' && event.partitions.length === 2));
      expect(performance.now() - started).toBeLessThan(20_000);
    });

    it('refuses commits under a generation that is over', async () => {
      const topic = await topicOf(1);
      const groupId = unique('group');
      const disturbed = closing.add(await subject().disturbed());
      const zombie = consumerOf(topic, groupId, { sessionTimeoutMs: 6_000 }, disturbed.client);
      await joinAndStart(zombie);
      disturbed.faults.partition();
      const successor = consumerOf(topic, groupId, { sessionTimeoutMs: 6_000 });
      await nextEvent(successor, 'assigned', 30_000);
      disturbed.faults.heal();
      await expect(
        (async () => {
          for (let i = 0; i < 50; i++) await zombie.commit([{ topic, partition: 0, offset: 9n }]).catch(rethrowUnlessRetriable);
        })(),
      ).rejects.toThrow(StaleGenerationError);
      expect(await successor.committed([{ topic, partition: 0 }])).toEqual([]);
      const lost = await nextEvent(zombie, 'lost');
      expect(keys(lost.partitions)).toEqual([`${topic}/0`]);
      expect(() => zombie.groupMetadata()).toThrow(StaleGenerationError);
    });

    it('loses its partitions when it is not polled for maxPollIntervalMs, and joins again when it is', async () => {
      const topic = await topicOf(1);
      const groupId = unique('group');
      const stuck = consumerOf(topic, groupId, { maxPollIntervalMs: 1_000 });
      await joinAndStart(stuck);
      const other = consumerOf(topic, groupId);
      // The stuck one does not answer the rebalance; only its leaving lets the other one have the partition.
      await pollUntil(other, (events) => events.some((event) => event.type === 'assigned' && event.partitions.length === 1), 30_000);
      expect((await nextEvent(stuck, 'lost')).reason).toContain('maxPollIntervalMs');
      await Promise.all([nextEvent(stuck, 'assigned'), nextEvent(other, 'revoked').then(() => nextEvent(other, 'assigned'))]);
    });

    it('keeps its membership alive by itself between two polls', async () => {
      const topic = await topicOf(1);
      const groupId = unique('group');
      const consumer = consumerOf(topic, groupId, { sessionTimeoutMs: 6_000 });
      const { generation } = await joinAndStart(consumer);
      const other = consumerOf(unique('other'), groupId);
      void other;
      const until = performance.now() + 8_000;
      await expect.poll(() => performance.now() > until, { timeout: 10_000, interval: 200 }).toBe(true);
      await consumer.commit([{ topic, partition: 0, offset: 0n }]);
      expect(consumer.groupMetadata().generation).toBe(generation);
    });

    it('neither loses nor repeats the position when a leader or the coordinator moves', async () => {
      const topic = await topicOf(1, ['a']);
      const disturbed = closing.add(await subject().disturbed());
      const consumer = consumerOf(topic, unique('group'), {}, disturbed.client);
      await joinAndStart(consumer);
      expect(valuesOf(await readRecords(consumer, 1))).toEqual(['a']);
      const leader = disturbed.faults.refuse('Fetch', NOT_LEADER_OR_FOLLOWER);
      const coordinator = disturbed.faults.refuse('Heartbeat', NOT_COORDINATOR);
      await expect
        .poll(async () => {
          const events = await consumer.poll(100);
          expect(events.filter(({ type }) => type !== 'batch')).toEqual([]);
          return [leader.fired, coordinator.fired];
        })
        .toEqual([1, 1]);
      await write(topic, ['b']);
      expect(valuesOf(await readRecords(consumer, 1))).toEqual(['b']);
    });

    it('goes on after the connections were lost, without losing or repeating a record', async () => {
      const topic = await topicOf(1, ['a']);
      const disturbed = closing.add(await subject().disturbed());
      const consumer = consumerOf(topic, unique('group'), { sessionTimeoutMs: 30_000 }, disturbed.client);
      await joinAndStart(consumer);
      const values = valuesOf(await readRecords(consumer, 1));
      for (const value of ['b', 'c', 'd']) {
        disturbed.faults.partition();
        await write(topic, [value]);
        disturbed.faults.heal();
        values.push(...valuesOf(await readRetrying(consumer)));
      }
      expect(values).toEqual(['a', 'b', 'c', 'd']);
    });

    it('delivers no batch of an older start after startFrom', async () => {
      const topic = await topicOf(
        1,
        Array.from({ length: 300 }, (_, i) => `${i}`),
      );
      const consumer = consumerOf(topic, unique('group'));
      const assigned = await nextEvent(consumer, 'assigned');
      const [partition] = assigned.partitions as [TopicPartition];
      consumer.startFrom(partition, 0n);
      await readRecords(consumer, 1);
      consumer.startFrom(partition, 299n);
      expect(valuesOf(await readRecords(consumer, 1))).toEqual(['299']);
      consumer.startFrom(partition, 298n);
      expect(valuesOf(await readRecords(consumer, 2))).toEqual(['298', '299']);
    });

    it('delivers nothing of a paused partition, and all of it after resume', async () => {
      const topic = await topicOf(2, ['a']);
      const consumer = consumerOf(topic, unique('group'));
      await joinAndStart(consumer);
      await readRecords(consumer, 1);
      consumer.pause([{ topic, partition: 0 }]);
      await write(topic, ['b'], 0);
      await write(topic, ['other'], 1);
      expect(valuesOf(await readRecords(consumer, 1))).toEqual(['other']);
      for (let i = 0; i < 4; i++) expect(await consumer.poll(100)).toEqual([]);
      consumer.resume([{ topic, partition: 0 }]);
      expect(valuesOf(await readRecords(consumer, 1))).toEqual(['b']);
    });

    it('tells that a position lies outside the log, and never moves it by itself', async () => {
      const topic = await topicOf(1, ['a', 'b', 'c']);
      await closing.add(subject().client.admin()).deleteRecords([{ topic, partition: 0, offset: 2n }]);
      const consumer = consumerOf(topic, unique('group'));
      const assigned = await nextEvent(consumer, 'assigned');
      const [partition] = assigned.partitions as [TopicPartition];
      consumer.startFrom(partition, 1n);
      expect(await nextEvent(consumer, 'out-of-range')).toMatchObject({ topic, partition: 0, position: 1n, logStart: 2n, logEnd: 3n });
      for (let i = 0; i < 4; i++) expect(await consumer.poll(100)).toEqual([]);
      consumer.startFrom(partition, 2n);
      expect(valuesOf(await readRecords(consumer, 1))).toEqual(['c']);
    });

    it('gives the first offset at or after a time', async () => {
      const topic = await topicOf(1, ['a', 'b']);
      const consumer = consumerOf(topic, unique('group'));
      const { partitions } = await nextEvent(consumer, 'assigned');
      expect((await consumer.logOffsets(partitions)).get(`${topic}/0`)).toEqual({ start: 0n, end: 2n });
    });

    it('subscribes by pattern, and notices topics and partitions that are created later', async () => {
      const prefix = unique('pattern');
      await topicOf(1, [], `${prefix}-one`);
      const consumer = consumerOf('', unique('group'), {
        subscription: { topics: [], patterns: [new RegExp(`^${prefix}-`)] },
        metadataMaxAgeMs: 300,
      });
      expect(keys((await nextEvent(consumer, 'assigned')).partitions)).toEqual([`${prefix}-one/0`]);
      await topicOf(2, [], `${prefix}-two`);
      const events = await pollUntil(consumer, (came) => came.some((event) => event.type === 'assigned' && event.partitions.length === 3));
      expect(events.some(({ type }) => type === 'revoked')).toBe(true);
    });

    it('says which topic does not exist', async () => {
      const topic = unique('absent');
      const consumer = consumerOf(topic, unique('group'));
      const outcome = (async () => {
        const until = performance.now() + 15_000;
        while (performance.now() < until) await consumer.poll(100).catch(rethrowUnlessRetriable);
      })();
      await expect(outcome).rejects.toThrow(FatalError);
      await expect(outcome).rejects.toThrow(topic);
    });

    it('closes in a moment while a fetch waits for data', async () => {
      const topic = await topicOf(1);
      const consumer = consumerOf(topic, unique('group'), { fetch: { maxWaitMs: 20_000 } });
      await joinAndStart(consumer);
      await consumer.poll(200);
      const started = performance.now();
      await consumer.close();
      expect(performance.now() - started).toBeLessThan(10_000);
    });
  });
}

function rethrowUnlessRetriable(error: unknown): void {
  if ((error as { code?: string }).code !== 'RETRIABLE') throw error;
}

async function readRetrying(consumer: GroupConsumer): Promise<ReturnType<typeof readRecords>> {
  for (let attempt = 0; attempt < 100; attempt++) {
    try {
      return await readRecords(consumer, 1);
    } catch (error) {
      rethrowUnlessRetriable(error);
    }
  }
  throw new Error('no record came after the connections were lost');
}
