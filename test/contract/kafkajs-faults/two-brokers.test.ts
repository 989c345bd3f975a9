import type { Admin as PlainAdmin } from 'kafkajs';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { kafkaClient } from '../../../src/kafka/kafkajs/client.ts';
import { connectionConfig } from '../../../src/kafka/kafkajs/config.ts';
import { ClusterConnection } from '../../../src/kafka/kafkajs/connection.ts';
import { ErrorCode } from '../../../src/kafka/kafkajs/wire/error-code.ts';
import type { KafkaClient } from '../../../src/kafka/port.ts';
import { NO_HEADERS } from '../../../src/model/headers.ts';
import { startBrokerPair, type BrokerPair } from '../../support/broker-pair.ts';
import { FaultProxy } from '../../support/fault-proxy.ts';
import { dealingAssignor, joinAndStart, pollUntil, readRecords } from '../suite/group.ts';
import { commitValues, readLog, readValues, valuesOf } from '../suite/log.ts';
import { Closing, unique } from '../suite/subject.ts';
import { explicitPartition, plainKafka } from './plain.ts';

/** Faults of plain kafkajs 2.2.4 that take leaders on two brokers, and that this client does not have them. */
describe('two brokers, beside plain kafkajs', () => {
  const closing = new Closing();
  let pair: BrokerPair;
  let client: KafkaClient;
  let plainAdmin: PlainAdmin;

  beforeAll(async () => {
    pair = await startBrokerPair();
    client = kafkaClient({ brokers: pair.addresses.split(',') });
    plainAdmin = plainKafka(pair.addresses).admin();
    await plainAdmin.connect();
  }, 120_000);
  afterAll(async () => {
    await plainAdmin.disconnect();
    await pair.close();
  });
  afterEach(() => closing.closeAll());

  /** Partition 0 is led by node 1, partition 1 by node 2. */
  async function topicOf(replicas: readonly [readonly number[], readonly number[]] = [[1], [2]]): Promise<string> {
    const topic = unique('pair');
    await plainAdmin.createTopics({
      waitForLeaders: true,
      topics: [
        {
          topic,
          configEntries: [{ name: 'retention.ms', value: '-1' }],
          replicaAssignment: replicas.map((nodes, partition) => ({ partition, replicas: [...nodes] })),
        },
      ],
    });
    expect(await leaders(topic)).toEqual([1, 2]);
    return topic;
  }

  async function leaders(topic: string): Promise<number[]> {
    const metadata = await plainAdmin.fetchTopicMetadata({ topics: [topic] });
    return (metadata.topics[0]?.partitions ?? []).toSorted((a, b) => a.partitionId - b.partitionId).map(({ leader }) => leader);
  }

  async function move(topic: string, partition: number, nodeId: number): Promise<void> {
    await plainAdmin.alterPartitionReassignments({ topics: [{ topic, partitionAssignment: [{ partition, replicas: [nodeId] }] }] });
    await expect.poll(async () => (await leaders(topic))[partition], { timeout: 20_000 }).toBe(nodeId);
  }

  async function proxyOf(): Promise<FaultProxy> {
    return closing.add(await FaultProxy.kafka(pair.brokers[0].address));
  }

  const refusal = () =>
    ({ api: 'Produce', action: 'answerError', errorCode: ErrorCode.NOT_LEADER_OR_FOLLOWER, server: pair.brokers[1].address }) as const;

  function tally(values: readonly (string | null)[], sent: readonly string[]): { missing: number; doubled: number } {
    return { missing: sent.filter((value) => !values.includes(value)).length, doubled: values.length - new Set(values).size };
  }

  it('S4: messages without a key, and one of two leaders refuses once', async () => {
    const topic = await topicOf();
    const proxy = await proxyOf();
    const sent = ['m0', 'm1', 'm2', 'm3', 'm4'];
    const plain = plainKafka(proxy.address).producer({ idempotent: true });
    closing.add({ close: () => plain.disconnect() });
    await plain.connect();
    const refused = proxy.addRule(refusal());
    await plain.send({ topic, messages: sent.map((value) => ({ value })) });
    expect(refused.fired).toBe(1);
    const plainTally = tally(await readValues(client, topic), sent);
    expect(plainTally.missing).toBeGreaterThan(0);
    expect(plainTally.doubled).toBeGreaterThan(0);

    const ownTopic = await topicOf();
    const ours = closing.add(kafkaClient({ brokers: [proxy.address] }).idempotentProducer());
    await ours.init();
    await ours.loadTopics([ownTopic]);
    const refusedAgain = proxy.addRule(refusal());
    sent.forEach((value, i) => ours.append(ownTopic, i % 2, null, value, 1_000, NO_HEADERS));
    await ours.flush();
    expect(refusedAgain.fired).toBe(1);
    expect(tally(await readValues(client, ownTopic), sent)).toEqual({ missing: 0, doubled: 0 });
  });

  it('S5: the leader of a partition that has acknowledged moves before the rest is sent again', async () => {
    const topic = await topicOf();
    const proxy = await proxyOf();
    const plain = plainKafka(proxy.address).producer({ idempotent: true, createPartitioner: explicitPartition });
    closing.add({ close: () => plain.disconnect() });
    await plain.connect();
    // Node 2 answers when node 1 has acknowledged partition 0 and handed it over.
    const handOver = deferred();
    const refused = proxy.addRule({ ...refusal(), until: handOver.promise });
    const sending = plain.send({ topic, messages: [0, 1].map((partition) => ({ partition, value: `p${partition}` })) });
    await refused.waitFired();
    await expect.poll(() => readValues(client, topic)).toEqual(['p0']);
    await move(topic, 0, 2);
    handOver.resolve();
    await sending;
    // Idempotence does not help: what is sent again has a new sequence.
    expect(tally(await readValues(client, topic), ['p0', 'p1'])).toEqual({ missing: 0, doubled: 1 });

    const ownTopic = await topicOf();
    const ours = closing.add(kafkaClient({ brokers: [proxy.address] }).idempotentProducer());
    await ours.init();
    await ours.loadTopics([ownTopic]);
    const handOverAgain = deferred();
    const refusedAgain = proxy.addRule({ ...refusal(), until: handOverAgain.promise });
    for (const partition of [0, 1]) ours.append(ownTopic, partition, null, `p${partition}`, 1_000, NO_HEADERS);
    const flushing = ours.flush();
    await refusedAgain.waitFired();
    await expect.poll(() => readValues(client, ownTopic)).toEqual(['p0']);
    await move(ownTopic, 0, 2);
    handOverAgain.resolve();
    await flushing;
    expect(tally(await readValues(client, ownTopic), ['p0', 'p1'])).toEqual({ missing: 0, doubled: 0 });
  });

  it('leaders that move while batches are in flight: nothing missing, nothing doubled, each partition in order', async () => {
    const topic = await topicOf();
    const ours = closing.add(client.idempotentProducer({ batchBytes: 500 }));
    await ours.init();
    await ours.loadTopics([topic]);
    const progress = { moved: false };
    const moves = (async () => {
      await move(topic, 0, 2);
      await move(topic, 1, 1);
      await move(topic, 0, 1);
    })().finally(() => {
      progress.moved = true;
    });
    let count = 0;
    while (!progress.moved) {
      for (let i = 0; i < 50; i++, count++) ours.append(topic, count % 2, null, `${count}`, 1_000, NO_HEADERS);
      await ours.ready();
      await ours.flush();
    }
    await moves;
    const records = await readLog(client, topic);
    for (const partition of [0, 1]) {
      const numbers = records.filter((record) => record.partition === partition).map(({ value }) => Number(value));
      expect(numbers).toEqual(Array.from({ length: Math.ceil((count - partition) / 2) }, (_, i) => i * 2 + partition));
    }
  });

  it('S11: a fetch meets a leader that has moved, while the handler of another partition runs', async () => {
    const topic = await topicOf();
    const producer = closing.add(client.idempotentProducer());
    await producer.init();
    await producer.loadTopics([topic]);
    producer.append(topic, 0, null, 'slow', 1_000, NO_HEADERS);
    await producer.flush();
    const proxy = await proxyOf();
    const moved = () =>
      proxy.addRule({ api: 'Fetch', action: 'answerError', errorCode: ErrorCode.NOT_LEADER_OR_FOLLOWER, server: pair.brokers[1].address });

    const plain = plainKafka(proxy.address).consumer({ groupId: unique('plain'), maxWaitTimeInMs: 100, heartbeatInterval: 200 });
    let joins = 0;
    const released = deferred();
    plain.on(plain.events.GROUP_JOIN, () => void joins++);
    const handling = new Promise<void>((resolve, reject) => {
      plain
        .connect()
        .then(() => plain.subscribe({ topics: [topic], fromBeginning: true }))
        .then(() =>
          plain.run({
            partitionsConsumedConcurrently: 2,
            eachBatch: async () => {
              resolve();
              await released.promise;
            },
          }),
        )
        .catch(reject);
    });
    await handling;
    expect(joins).toBe(1);
    moved();
    // The group is joined anew although nobody came or left, and the handler of the generation before still runs.
    await expect.poll(() => joins, { timeout: 20_000 }).toBe(2);
    released.resolve();
    await plain.disconnect();

    const ours = closing.add(
      kafkaClient({ brokers: [proxy.address] }).groupConsumer({
        groupId: unique('ours'),
        subscription: { topics: [topic] },
        assignor: dealingAssignor(),
        heartbeatIntervalMs: 200,
        fetch: { maxWaitMs: 100 },
      }),
    );
    const { generation } = await joinAndStart(ours);
    expect(valuesOf(await readRecords(ours, 1))).toEqual(['slow']);
    const rule = moved();
    await expect
      .poll(async () => {
        expect(await ours.poll(50)).toEqual([]);
        return rule.fired;
      })
      .toBe(1);
    producer.append(topic, 1, null, 'behind the moved leader', 1_000, NO_HEADERS);
    await producer.flush();
    expect(valuesOf(await readRecords(ours, 1))).toEqual(['behind the moved leader']);
    expect(ours.groupMetadata().generation).toBe(generation);
  });

  it(
    'a broker is killed: leaders and coordinators move, and a transactional loop goes on without loss or double',
    { timeout: 120_000 },
    async () => {
      const input = await topicOf([
        [1, 2],
        [2, 1],
      ]);
      const output = await topicOf([
        [1, 2],
        [2, 1],
      ]);
      const source = closing.add(client.idempotentProducer());
      await source.init();
      await source.loadTopics([input]);
      let commits = 0;
      let killed: Promise<void> | undefined;
      const transactional = closing.add(
        client.transactionalProducer({
          transactionalId: await idOn(2),
          transactionTimeoutMs: 5_000,
          requestTimeoutMs: 3_000,
          // At the worst moment: the coordinator has the commit, and dies before it answers, or before it has told the partitions.
          failPoints: () => {
            if (++commits === 3) killed = pair.brokers[1].kill();
          },
        }),
      );
      await transactional.init();
      await transactional.loadTopics([output]);
      const consumer = closing.add(
        client.groupConsumer({
          groupId: unique('group'),
          subscription: { topics: [input] },
          assignor: dealingAssignor(),
          heartbeatIntervalMs: 300,
          requestTimeoutMs: 3_000,
          fetch: { maxWaitMs: 100 },
        }),
      );
      await joinAndStart(consumer);
      const count = 300;
      const positions = new Map<number, bigint>();
      const total = (): bigint => [...positions.values()].reduce((sum, offset) => sum + offset, 0n);
      const sending = (async () => {
        for (let i = 0; i < count; i++) {
          source.append(input, i % 2, null, `${i}`, 1_000, NO_HEADERS);
          if (i % 10 === 9) {
            await source.flush();
            // So that there are many transactions, before the kill and after it.
            await expect.poll(() => total() > BigInt(i - 30), { timeout: 60_000, interval: 5 }).toBe(true);
          }
        }
        await source.flush();
      })();

      const restart = async (): Promise<void> => {
        const partitions = [0, 1].map((partition) => ({ topic: input, partition }));
        const committed = await consumer.committed(partitions);
        for (const { partition } of partitions) {
          const offset = committed.find((each) => each.partition === partition)?.offset ?? 0n;
          positions.set(partition, offset);
          consumer.startFrom({ topic: input, partition }, offset);
        }
      };
      let mustRestart = false;
      const deadline = performance.now() + 90_000;
      for (;;) {
        if (performance.now() > deadline) throw new Error(`not through in time: ${JSON.stringify([...positions].map(String))}`);
        try {
          if (mustRestart) {
            await transactional.init();
            await restart();
            mustRestart = false;
          }
          const events = await consumer.poll(200);
          if (events.some(({ type }) => type === 'lost' || type === 'revoked')) {
            await pollUntil(consumer, (came) => came.some(({ type }) => type === 'assigned'), 30_000);
            mustRestart = true;
            continue;
          }
          const batches = events.flatMap((event) => (event.type === 'batch' ? [event.batch] : []));
          if (batches.length > 0) {
            transactional.begin();
            for (const batch of batches) {
              for (let record = batch.records.next(); record !== undefined; record = batch.records.next()) {
                transactional.append(output, batch.partition, null, record.value, 1_000, NO_HEADERS);
              }
              positions.set(batch.partition, batch.nextOffset);
            }
            await transactional.flush();
            const offsets = [...positions].map(([partition, offset]) => ({ topic: input, partition, offset }));
            await transactional.sendOffsets(offsets, consumer.groupMetadata());
            await transactional.commit();
          }
          if (total() >= BigInt(count)) break;
        } catch (error) {
          if ((error as { code?: string }).code === 'FATAL') throw error;
          mustRestart = true;
        }
      }
      await sending;
      await killed;
      expect(killed).toBeDefined();
      await commitValues(transactional, output, ['end']);
      const records = (await readLog(client, output)).filter(({ value }) => String(value) !== 'end');
      for (const partition of [0, 1]) {
        const numbers = records.filter((record) => record.partition === partition).map(({ value }) => Number(value));
        expect(numbers).toEqual(Array.from({ length: count / 2 }, (_, i) => i * 2 + partition));
      }
    },
  );

  /** A transactional id whose coordinator is on this node. */
  async function idOn(nodeId: number): Promise<string> {
    const connection = new ClusterConnection(connectionConfig({ brokers: pair.addresses.split(',') }));
    try {
      for (;;) {
        const id = unique('txn');
        if ((await connection.coordinator('transaction', id)) === nodeId) return id;
      }
    } finally {
      connection.close();
    }
  }
});

function deferred(): { readonly promise: Promise<void>; resolve(): void } {
  let settle: () => void = () => undefined;
  const promise = new Promise<void>((resolve) => {
    settle = resolve;
  });
  return { promise, resolve: () => settle() };
}
