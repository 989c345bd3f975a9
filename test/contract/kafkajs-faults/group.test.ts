import { afterEach, describe, expect, inject, it } from 'vitest';
import { kafkaClient } from '../../../src/kafka/kafkajs/client.ts';
import type { KafkaClient } from '../../../src/kafka/port.ts';
import { NO_HEADERS } from '../../../src/model/headers.ts';
import { dealingAssignor, joinAndStart, nextEvent, readRecords } from '../suite/group.ts';
import { readLog, valuesOf } from '../suite/log.ts';
import { Closing, KEPT, unique } from '../suite/subject.ts';
import { plainKafka } from './plain.ts';

/** Each of these shows a fault of plain kafkajs 2.2.4 and that this client, in the same situation, does not have it. */
describe('a group consumer beside plain kafkajs', () => {
  const brokers = inject('kafkaBrokers');
  const kafka = plainKafka(brokers);
  const client: KafkaClient = kafkaClient({ brokers: brokers.split(',') });
  const closing = new Closing();
  afterEach(() => closing.closeAll());

  async function topicOf(values: readonly string[], partitions = 1): Promise<string> {
    const topic = unique('faults');
    await closing.add(client.admin()).createTopics([{ topic, partitions, configs: KEPT }]);
    await write(topic, values);
    return topic;
  }

  async function write(topic: string, values: readonly string[]): Promise<void> {
    if (values.length === 0) return;
    const producer = closing.add(client.idempotentProducer());
    await producer.init();
    await producer.loadTopics([topic]);
    for (const value of values) producer.append(topic, 0, null, value, 1_000, NO_HEADERS);
    await producer.flush();
  }

  function ours(topic: string, groupId = unique('ours'), maxWaitMs = 100) {
    const options = {
      groupId,
      subscription: { topics: [topic] },
      assignor: dealingAssignor(),
      heartbeatIntervalMs: 200,
      fetch: { maxWaitMs },
    };
    return closing.add(client.groupConsumer(options));
  }

  function plain(groupId = unique('plain'), options: { maxWaitTimeInMs?: number } = { maxWaitTimeInMs: 50 }) {
    const consumer = kafka.consumer({ groupId, heartbeatInterval: 200, ...options });
    closing.add({ close: () => consumer.disconnect() });
    return consumer;
  }

  it('S12: state must be restored after an assignment, before the first record', async () => {
    const topic = await topicOf(['a']);
    const consumer = plain();
    const order: string[] = [];
    let restored: () => void = () => undefined;
    const restoring = new Promise<void>((resolve) => {
      restored = resolve;
    });
    const restore = async (): Promise<void> => {
      await restoring;
      order.push('restored');
    };
    consumer.on(consumer.events.GROUP_JOIN, () => void restore());
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    await consumer.run({ eachMessage: async () => void order.push('record') });
    await expect.poll(() => order, { timeout: 15_000 }).toEqual(['record']);
    restored();
    await expect.poll(() => order).toEqual(['record', 'restored']);

    const own = ours(topic);
    const { partitions } = await nextEvent(own, 'assigned');
    for (let i = 0; i < 5; i++) expect(await own.poll(100)).toEqual([]);
    for (const partition of partitions) own.startFrom(partition, 0n);
    expect(valuesOf(await readRecords(own, 1))).toEqual(['a']);
  });

  it('partitions are taken away while work on them is not committed', async () => {
    const topic = await topicOf(['a'], 2);
    const groupId = unique('plain');
    const first = plain(groupId);
    const order: string[] = [];
    let commit: () => void = () => undefined;
    const mayCommit = new Promise<void>((resolve) => {
      commit = resolve;
    });
    const drain = async (): Promise<void> => {
      await mayCommit;
      order.push('committed');
    };
    first.on(first.events.REBALANCING, () => void drain());
    first.on(first.events.GROUP_JOIN, ({ payload }) => void order.push(`joined with ${payload.memberAssignment[topic]?.length}`));
    await first.connect();
    await first.subscribe({ topics: [topic], fromBeginning: true });
    await first.run({ autoCommit: false, eachBatch: async () => undefined });
    await expect.poll(() => order, { timeout: 15_000 }).toEqual(['joined with 2']);
    const second = plain(groupId);
    await second.connect();
    await second.subscribe({ topics: [topic], fromBeginning: true });
    await second.run({ autoCommit: false, eachBatch: async () => undefined });
    // The event that tells of the rebalance is not waited for, so the partition is gone before the commit.
    await expect.poll(() => order, { timeout: 15_000 }).toEqual(['joined with 2', 'joined with 1']);
    commit();
    await expect.poll(() => order).toEqual(['joined with 2', 'joined with 1', 'committed']);

    const ownGroup = unique('ours');
    const own = ours(topic, ownGroup);
    await joinAndStart(own);
    await readRecords(own, 1);
    const other = ours(topic, ownGroup);
    const otherAssigned = nextEvent(other, 'assigned');
    const revoked = await nextEvent(own, 'revoked');
    expect(revoked.partitions).toHaveLength(2);
    await own.commit([{ topic, partition: 0, offset: 1n }]);
    await nextEvent(own, 'assigned');
    await otherAssigned;
    expect((await other.committed([{ topic, partition: 0 }]))[0]?.offset).toBe(1n);
  });

  it('stopping waits for a fetch that waits for data', async () => {
    const topic = await topicOf(['a']);
    const consumer = plain(unique('plain'), {});
    let received: () => void = () => undefined;
    const first = new Promise<void>((resolve) => (received = resolve));
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    let fetching = 0;
    consumer.on(consumer.events.FETCH_START, () => void fetching++);
    await consumer.run({ eachMessage: async () => received() });
    await first;
    await expect.poll(() => fetching).toBeGreaterThan(1);
    const plainMs = await timed(() => consumer.stop());
    expect(plainMs).toBeGreaterThan(3_000);

    const own = ours(topic, unique('ours'), 20_000);
    await joinAndStart(own);
    await readRecords(own, 1);
    await own.poll(100);
    const ownMs = await timed(() => own.close());
    expect(ownMs).toBeLessThan(10_000);
  });

  it('reading chosen partitions without a group', async () => {
    const topic = await topicOf(['a', 'b']);
    // kafkajs reads in groups only; every reader leaves one behind.
    expect(() => kafka.consumer({ groupId: '' })).toThrow(/groupId/);
    expect(plain()).not.toHaveProperty('assign');

    const records = await readLog(client, topic, { from: [{ topic, partition: 0, offset: 1n }] });
    expect(valuesOf(records)).toEqual(['b']);
  });

  it('a position below the log start', async () => {
    const topic = await topicOf(['a', 'b', 'c']);
    const groupId = unique('plain');
    const admin = kafka.admin();
    await admin.connect();
    closing.add({ close: () => admin.disconnect() });
    await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '1' }] });
    await closing.add(client.admin()).deleteRecords([{ topic, partition: 0, offset: 2n }]);
    const consumer = plain(groupId);
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: false });
    const delivered: string[] = [];
    await consumer.run({ autoCommit: false, eachMessage: async ({ message }) => void delivered.push(String(message.value)) });
    // It throws the committed offset away, goes on at the end of the log, and tells nobody: the record at offset 2 is never seen.
    await expect
      .poll(async () => (await admin.fetchOffsets({ groupId, topics: [topic] }))[0]?.partitions[0]?.offset, { timeout: 20_000 })
      .toBe('-1');
    await expect
      .poll(
        async () => {
          await write(topic, ['later']);
          return delivered.at(-1);
        },
        { timeout: 15_000 },
      )
      .toBe('later');
    expect(delivered).not.toContain('c');

    const own = ours(topic);
    const { partitions } = await nextEvent(own, 'assigned');
    for (const partition of partitions) own.startFrom(partition, 1n);
    expect(await nextEvent(own, 'out-of-range')).toMatchObject({ position: 1n, logStart: 2n });
  });
});

async function timed(action: () => Promise<unknown>): Promise<number> {
  const started = performance.now();
  await action();
  return performance.now() - started;
}
