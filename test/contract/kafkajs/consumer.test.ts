import { Kafka, logLevel } from 'kafkajs';
import { afterAll, afterEach, beforeAll, describe, expect, inject, it } from 'vitest';
import { kafkaClient } from '../../../src/kafka/kafkajs/client.ts';
import type { GroupConsumer, GroupConsumerOptions, KafkaClient } from '../../../src/kafka/port.ts';
import { topicPartitionKey, type PartitionOffset, type TopicPartition } from '../../../src/model/topic-partition.ts';
import { dealingAssignor, joinAndStart, nextEvent, pollUntil } from '../suite/group.ts';
import { appendAll, recordsOf, valuesOf } from '../suite/log.ts';
import { Closing, KEPT, unique } from '../suite/subject.ts';

describe('group consumers of kafkajs/ on a broker', () => {
  const closing = new Closing();
  let client: KafkaClient;
  let kafka: Kafka;
  let admin: ReturnType<Kafka['admin']>;

  beforeAll(async () => {
    const brokers = inject('kafkaBrokers').split(',');
    client = kafkaClient({ brokers });
    kafka = new Kafka({ brokers, logLevel: logLevel.NOTHING });
    admin = kafka.admin();
    await admin.connect();
  });
  afterEach(() => closing.closeAll());
  afterAll(() => admin.disconnect());

  async function topicOf(partitions: number): Promise<string> {
    const topic = unique('consumed');
    await closing.add(client.admin()).createTopics([{ topic, partitions, configs: KEPT }]);
    return topic;
  }

  async function write(topic: string, valuesByPartition: readonly (readonly string[])[]): Promise<void> {
    const producer = closing.add(client.idempotentProducer());
    await producer.init();
    await producer.loadTopics([topic]);
    valuesByPartition.forEach((values, partition) => appendAll(producer, topic, values, partition));
    await producer.flush();
  }

  function consumerOf(topic: string, groupId: string, options: Partial<GroupConsumerOptions> = {}): GroupConsumer {
    return closing.add(
      client.groupConsumer({
        groupId,
        subscription: { topics: [topic] },
        assignor: dealingAssignor(),
        heartbeatIntervalMs: 100,
        fetch: { maxWaitMs: 50 },
        ...options,
      }),
    );
  }

  /** Works as a worker does: starts at what is committed, and commits what it has read when it is asked to give up partitions. */
  class Worker {
    readonly values: string[] = [];
    readonly consumer: GroupConsumer;
    readonly #positions = new Map<string, PartitionOffset>();
    readonly #drain: () => Promise<void>;
    #running: Promise<void> | undefined;
    #stopped = false;

    constructor(consumer: GroupConsumer, drain: () => Promise<void> = () => Promise.resolve()) {
      this.consumer = consumer;
      this.#drain = drain;
    }

    start(): this {
      this.#running = this.#run();
      return this;
    }

    async stop(): Promise<void> {
      this.#stopped = true;
      await this.#running;
      await this.#commit();
      await this.consumer.close();
    }

    /** After a test that failed. */
    async close(): Promise<void> {
      this.#stopped = true;
      await this.#running?.catch(() => undefined);
    }

    async #run(): Promise<void> {
      while (!this.#stopped) {
        for (const event of await this.consumer.poll(50)) {
          if (event.type === 'assigned') await this.#begin(event.partitions, event.retained);
          if (event.type === 'lost') throw new Error(`lost: ${event.reason}`);
          if (event.type === 'revoked') {
            await this.#drain();
            await this.#commit();
          }
          if (event.type === 'batch') {
            const { topic, partition, nextOffset } = event.batch;
            for (const value of valuesOf(recordsOf(event.batch))) this.values.push(value ?? '');
            this.#positions.set(topicPartitionKey(topic, partition), { topic, partition, offset: nextOffset });
          }
        }
      }
    }

    async #begin(partitions: readonly TopicPartition[], retained: readonly TopicPartition[]): Promise<void> {
      const keys = new Set(retained.map((each) => topicPartitionKey(each.topic, each.partition)));
      const fresh = partitions.filter((each) => !keys.has(topicPartitionKey(each.topic, each.partition)));
      for (const key of this.#positions.keys()) if (!keys.has(key)) this.#positions.delete(key);
      const committed = await this.consumer.committed(fresh);
      for (const each of fresh) {
        const found = committed.find((offset) => offset.topic === each.topic && offset.partition === each.partition);
        this.consumer.startFrom(each, found?.offset ?? 0n);
      }
    }

    async #commit(): Promise<void> {
      await this.consumer.commit([...this.#positions.values()]);
    }
  }

  it('loses and repeats nothing when members come and go while records flow, although they fetch ahead', async () => {
    const topic = await topicOf(4);
    const groupId = unique('group');
    const producer = closing.add(client.idempotentProducer());
    await producer.init();
    await producer.loadTopics([topic]);
    let written = 0;
    const writeSome = async (count: number): Promise<void> => {
      for (const end = written + count; written < end; written++) producer.append(topic, written % 4, null, `${written}`, 1_000, []);
      await producer.flush();
    };
    const workers: Worker[] = [];
    const seen = (): string[] => workers.flatMap(({ values }) => values);
    const add = (): number =>
      workers.push(new Worker(consumerOf(topic, groupId, { fetch: { maxWaitMs: 20, maxPartitionBytes: 500 } })).start());
    add();
    for (let round = 0; round < 3; round++) {
      await writeSome(400);
      add();
      await expect
        .poll(() => writeSome(40).then(() => workers.at(-1)?.values.length), { timeout: 15_000, interval: 20 })
        .toBeGreaterThan(0);
      if (round > 0) await workers[round]?.stop();
    }
    await writeSome(400);
    await expect.poll(() => seen().length, { timeout: 20_000 }).toBeGreaterThanOrEqual(written);
    for (const worker of [workers[0], workers[3]]) await worker?.stop();
    const numbers = seen().map(Number);
    expect(numbers.toSorted((a, b) => a - b)).toEqual(Array.from({ length: written }, (_, i) => i));
  });

  it('waits for a member that takes its time to drain, and lets the others poll meanwhile', async () => {
    const topic = await topicOf(2);
    const groupId = unique('group');
    await write(topic, [['a'], ['b']]);
    let release: (() => void) | undefined;
    const drained = new Promise<void>((resolve) => (release = resolve));
    const slow = closing.add(new Worker(consumerOf(topic, groupId), () => drained).start());
    await expect.poll(() => slow.values.length).toBe(2);
    const other = consumerOf(topic, groupId);
    const until = performance.now() + 700;
    while (performance.now() < until) {
      const started = performance.now();
      expect(await other.poll(50)).toEqual([]);
      expect(performance.now() - started).toBeLessThan(400);
    }
    release?.();
    const { partitions } = await nextEvent(other, 'assigned');
    // What the slow one committed in the middle of the rebalance, under its old generation, has counted.
    expect((await other.committed(partitions)).map(({ offset }) => offset)).toEqual([1n]);
    await slow.stop();
  });

  it('lets a static member come back to its partitions without a rebalance', async () => {
    const topic = await topicOf(2);
    const groupId = unique('group');
    const options = (groupInstanceId: string) => ({ groupInstanceId, sessionTimeoutMs: 30_000 });
    const stays = consumerOf(topic, groupId, options('one'));
    const first = consumerOf(topic, groupId, options('two'));
    const [, before] = await Promise.all([
      pollUntil(stays, (events) => events.some((event) => event.type === 'assigned' && event.partitions.length === 1)),
      pollUntil(first, (events) => events.some((event) => event.type === 'assigned' && event.partitions.length === 1)),
    ]);
    const { generation, memberId } = first.groupMetadata();
    await first.close();
    const second = consumerOf(topic, groupId, options('two'));
    const after = await joinAndStart(second);
    expect(after).toMatchObject({ generation, retained: [] });
    expect(before.findLast(({ type }) => type === 'assigned')).toMatchObject({ partitions: after.partitions });
    expect(second.groupMetadata().memberId).not.toBe(memberId);
    expect((await stays.poll(500)).filter(({ type }) => type !== 'batch')).toEqual([]);
    expect(stays.groupMetadata().generation).toBe(generation);
  });

  it('fences the other one when two share an instance id, and ends it instead of fighting', async () => {
    const topic = await topicOf(1);
    const groupId = unique('group');
    const first = consumerOf(topic, groupId, { groupInstanceId: 'same' });
    await joinAndStart(first);
    const second = consumerOf(topic, groupId, { groupInstanceId: 'same' });
    await joinAndStart(second);
    await nextEvent(first, 'lost');
    await expect(first.poll(1_000)).rejects.toThrow(/FENCED_INSTANCE_ID/);
    await second.commit([{ topic, partition: 0, offset: 0n }]);
  });

  it('takes in partitions that are added to a topic', async () => {
    const topic = await topicOf(1);
    const groupId = unique('group');
    const members = [0, 1].map(() => consumerOf(topic, groupId, { metadataMaxAgeMs: 200 }));
    const assigned = new Map<GroupConsumer, number>();
    const poll = async (consumer: GroupConsumer): Promise<void> => {
      for (const event of await consumer.poll(100)) if (event.type === 'assigned') assigned.set(consumer, event.partitions.length);
    };
    const counts = async (): Promise<number[]> => {
      await Promise.all(members.map(poll));
      return [...assigned.values()].toSorted((a, b) => a - b);
    };
    await expect.poll(counts, { timeout: 10_000 }).toEqual([0, 1]);
    await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] });
    await expect.poll(counts, { timeout: 10_000 }).toEqual([2, 2]);
  });

  it('closes while it waits for another member to join, and does not hold up the group', async () => {
    const topic = await topicOf(1);
    const groupId = unique('group');
    const first = consumerOf(topic, groupId);
    const { generation } = await joinAndStart(first);
    const joining = consumerOf(topic, groupId);
    await joining.poll(300);
    // Not polled again until the other one is gone, so the join could not end.
    await nextEvent(first, 'revoked');
    const started = performance.now();
    await joining.close();
    const again = await nextEvent(first, 'assigned');
    expect(performance.now() - started).toBeLessThan(3_000);
    expect(again.partitions).toHaveLength(1);
    expect(again.generation).toBe(generation + 1);
  });

  it('is described by other clients as one of Kafka’s own consumers is', async () => {
    const topic = await topicOf(2);
    const groupId = unique('group');
    await joinAndStart(consumerOf(topic, groupId));
    const { groups } = await admin.describeGroups([groupId]);
    const [group] = groups;
    expect(group).toMatchObject({ state: 'Stable', protocolType: 'consumer', protocol: 'deal' });
    const { AssignerProtocol } = await import('kafkajs');
    const [member] = group!.members;
    expect(AssignerProtocol.MemberMetadata.decode(member!.memberMetadata)).toMatchObject({ topics: [topic] });
    expect(AssignerProtocol.MemberAssignment.decode(member!.memberAssignment)?.assignment).toEqual({ [topic]: [0, 1] });
  });
});
