import type { Producer } from 'kafkajs';
import { afterEach, describe, expect, inject, it } from 'vitest';
import { kafkaClient } from '../../../src/kafka/kafkajs/client.ts';
import { ErrorCode } from '../../../src/kafka/kafkajs/wire/error-code.ts';
import type { GroupConsumer, KafkaClient, TransactionalProducer } from '../../../src/kafka/port.ts';
import { FencedError, OutcomeUnknownError, RetriableError, StaleGenerationError } from '../../../src/model/errors.ts';
import { FaultProxy } from '../../support/fault-proxy.ts';
import { dealingAssignor, joinAndStart, nextEvent, readRecords } from '../suite/group.ts';
import { appendAll, commitValues, readValues, valuesOf } from '../suite/log.ts';
import { Closing, KEPT, unique } from '../suite/subject.ts';
import { plainKafka, plainTransactionalProducer } from './plain.ts';

/** Each of these shows a fault of plain kafkajs 2.2.4 and that this client, under the same fault, does not have it. */
describe('transactions beside plain kafkajs', () => {
  const brokers = inject('kafkaBrokers');
  const kafka = plainKafka(brokers);
  const client: KafkaClient = kafkaClient({ brokers: brokers.split(',') });
  const closing = new Closing();
  afterEach(() => closing.closeAll());

  async function topicOf(partitions = 1): Promise<string> {
    const topic = unique('faults');
    await closing.add(client.admin()).createTopics([{ topic, partitions, configs: KEPT }]);
    return topic;
  }

  async function proxyOf(): Promise<FaultProxy> {
    return closing.add(await FaultProxy.kafka(brokers.split(',')[0] ?? ''));
  }

  async function plainBehind(proxy: FaultProxy): Promise<Producer> {
    const producer = await plainTransactionalProducer(plainKafka(proxy.address), unique('plain'));
    closing.add({ close: () => producer.disconnect() });
    return producer;
  }

  async function oursBehind(proxy: FaultProxy, topic: string): Promise<TransactionalProducer> {
    // The protocol that kafkajs speaks, so that the same requests meet the same faults.
    const client = kafkaClient({ brokers: [proxy.address], transactionVersion: 1 });
    const producer = closing.add(client.transactionalProducer({ transactionalId: unique('ours') }));
    await producer.init();
    await producer.loadTopics([topic]);
    return producer;
  }

  async function member(topic: string, groupId = unique('group')): Promise<GroupConsumer> {
    const consumer = closing.add(
      client.groupConsumer({
        groupId,
        subscription: { topics: [topic] },
        assignor: dealingAssignor(),
        heartbeatIntervalMs: 200,
        fetch: { maxWaitMs: 50 },
      }),
    );
    await joinAndStart(consumer);
    return consumer;
  }

  async function groupOffset(groupId: string, topic: string): Promise<bigint | undefined> {
    return (await closing.add(client.admin()).groupOffsets(groupId, [topic]))[0]?.offset;
  }

  it('S6: the answer of EndTxn is lost', async () => {
    const topic = await topicOf();
    const proxy = await proxyOf();
    const plain = await plainBehind(proxy);
    const first = await plain.transaction();
    await first.send({ topic, messages: [{ value: 'plain', partition: 0 }] });
    proxy.addRule({ api: 'EndTxn', action: 'closeAfter' });
    await expect(first.commit()).rejects.toThrow(/[Cc]onnection/);
    await expect(first.abort()).rejects.toThrow(/once ended/);
    await expect(first.commit()).rejects.toThrow(/once ended/);
    await expect(plain.transaction()).rejects.toThrow(/COMMITTING/);

    const ours = await oursBehind(proxy, topic);
    ours.begin();
    appendAll(ours, topic, ['ours']);
    proxy.addRule({ api: 'EndTxn', action: 'closeAfter' });
    // Where repeating EndTxn under the same epoch has not settled it, a new epoch does.
    await ours.commit().catch(async (error: unknown) => {
      expect(error).toBeInstanceOf(OutcomeUnknownError);
      await ours.init();
    });
    await commitValues(ours, topic, ['next']);
    await expect.poll(() => readValues(client, topic)).toEqual(['plain', 'ours', 'next']);
  });

  it('S7: AddOffsetsToTxn answers CONCURRENT_TRANSACTIONS once', async () => {
    const topic = await topicOf();
    const proxy = await proxyOf();
    const groupId = unique('group');
    const consumer = await member(topic, groupId);
    const plain = await plainBehind(proxy);
    const transaction = await plain.transaction();
    await transaction.send({ topic, messages: [{ value: 'output without offset', partition: 0 }] });
    proxy.addRule({ api: 'AddOffsetsToTxn', action: 'answerError', errorCode: ErrorCode.CONCURRENT_TRANSACTIONS });
    const offsets = { consumerGroupId: groupId, topics: [{ topic, partitions: [{ partition: 0, offset: '1' }] }] };
    await expect(transaction.sendOffsets(offsets)).rejects.toThrow(/transaction/);
    await transaction.commit();
    await expect.poll(() => readValues(client, topic)).toEqual(['output without offset']);
    expect(await groupOffset(groupId, topic)).toBeUndefined();

    const ours = await oursBehind(proxy, topic);
    ours.begin();
    appendAll(ours, topic, ['output with offset']);
    await ours.flush();
    const refused = proxy.addRule({ api: 'AddOffsetsToTxn', action: 'answerError', errorCode: ErrorCode.CONCURRENT_TRANSACTIONS });
    await ours.sendOffsets([{ topic, partition: 0, offset: 2n }], consumer.groupMetadata());
    await ours.commit();
    expect(refused.fired).toBe(1);
    await expect.poll(() => readValues(client, topic)).toEqual(['output without offset', 'output with offset']);
    expect(await groupOffset(groupId, topic)).toBe(2n);
  });

  it('S7: the group refuses the offsets, and a commit follows', async () => {
    const topic = await topicOf();
    const proxy = await proxyOf();
    const groupId = unique('group');
    const consumer = await member(topic, groupId);
    const refuse = () => proxy.addRule({ api: 'TxnOffsetCommit', action: 'answerError', errorCode: ErrorCode.GROUP_AUTHORIZATION_FAILED });
    const plain = await plainBehind(proxy);
    const transaction = await plain.transaction();
    await transaction.send({ topic, messages: [{ value: 'output without offset', partition: 0 }] });
    refuse();
    const offsets = { consumerGroupId: groupId, topics: [{ topic, partitions: [{ partition: 0, offset: '1' }] }] };
    await expect(transaction.sendOffsets(offsets)).rejects.toThrow(/authorized/i);
    await transaction.commit();
    await expect.poll(() => readValues(client, topic)).toEqual(['output without offset']);

    const ours = await oursBehind(proxy, topic);
    ours.begin();
    appendAll(ours, topic, ['must not be seen']);
    await ours.flush();
    refuse();
    await expect(ours.sendOffsets([{ topic, partition: 0, offset: 1n }], consumer.groupMetadata())).rejects.toThrow(groupId);
    await expect(ours.commit()).rejects.toThrow(groupId);
    await ours.abort();
    await commitValues(ours, topic, ['next']);
    await expect.poll(() => readValues(client, topic)).toEqual(['output without offset', 'next']);
    expect(await groupOffset(groupId, topic)).toBeUndefined();
  });

  it('S8: a zombie commits offsets of a generation that is over', async () => {
    const topic = await topicOf();
    const groupId = unique('group');
    const first = await member(topic, groupId);
    const stale = first.groupMetadata();
    const second = closing.add(
      client.groupConsumer({ groupId, subscription: { topics: [topic] }, assignor: dealingAssignor(), heartbeatIntervalMs: 200 }),
    );
    await Promise.all([nextEvent(second, 'assigned'), nextEvent(first, 'revoked').then(() => nextEvent(first, 'assigned'))]);

    const ours = await oursBehind(await proxyOf(), topic);
    ours.begin();
    appendAll(ours, topic, ['zombie']);
    await ours.flush();
    await expect(ours.sendOffsets([{ topic, partition: 0, offset: 666n }], stale)).rejects.toThrow(StaleGenerationError);
    await ours.abort();
    expect(await groupOffset(groupId, topic)).toBeUndefined();

    // kafkajs cannot even say which generation its offsets belong to, so the group takes them from anybody.
    const plain = await plainBehind(await proxyOf());
    const transaction = await plain.transaction();
    await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic, partitions: [{ partition: 0, offset: '666' }] }] });
    await transaction.commit();
    await expect.poll(() => groupOffset(groupId, topic)).toBe(666n);
  });

  it('S8: an offset is read while the transaction that commits it is open', async () => {
    const topic = await topicOf();
    const groupId = unique('group');
    const consumer = await member(topic, groupId);
    const producer = await oursBehind(await proxyOf(), topic);
    producer.begin();
    appendAll(producer, topic, ['a']);
    await producer.flush();
    await producer.sendOffsets([{ topic, partition: 0, offset: 1n }], consumer.groupMetadata());
    const admin = kafka.admin();
    await admin.connect();
    closing.add({ close: () => admin.disconnect() });
    const plainOffset = async (): Promise<string | undefined> =>
      (await admin.fetchOffsets({ groupId, topics: [topic] }))[0]?.partitions[0]?.offset;
    // The new owner would start from the beginning, and do again what is about to be committed.
    expect(await plainOffset()).toBe('-1');
    await expect(consumer.committed([{ topic, partition: 0 }])).rejects.toThrow(RetriableError);
    await producer.commit();
    await expect.poll(() => consumer.committed([{ topic, partition: 0 }]).catch(() => 'pending')).toMatchObject([{ offset: 1n }]);
  });

  it('S10: the position after an abort', async () => {
    const topic = await topicOf();
    const groupId = unique('group');
    const seed = await plainBehind(await proxyOf());
    const seeding = await seed.transaction();
    await seeding.send({ topic, messages: [{ value: 'input', partition: 0 }] });
    await seeding.commit();

    // One `Kafka` for both, as a consume-transform-produce loop has it: they share the table of committed offsets.
    const producer = await plainTransactionalProducer(kafka, unique('plain'));
    const plainGroup = unique('plain');
    const consumer = kafka.consumer({ groupId: plainGroup, maxWaitTimeInMs: 50 });
    closing.add({ close: () => Promise.all([producer.disconnect(), consumer.disconnect()]) });
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    const uncommitted = new Promise<{ before: number; afterAbort: number }>((resolve, reject) => {
      consumer
        .run({
          autoCommit: false,
          eachBatchAutoResolve: false,
          eachBatch: async (input) => {
            input.resolveOffset(input.batch.lastOffset());
            const offsets = input.uncommittedOffsets();
            const transaction = await producer.transaction();
            await transaction.sendOffsets({ consumerGroupId: plainGroup, topics: offsets.topics });
            await transaction.abort();
            resolve({ before: offsets.topics.length, afterAbort: input.uncommittedOffsets().topics.length });
          },
        })
        .catch(reject);
    });
    // Nothing was committed, yet nothing is uncommitted any more.
    expect(await uncommitted).toEqual({ before: 1, afterAbort: 0 });

    const ours = await member(topic, groupId);
    expect(valuesOf(await readRecords(ours, 1))).toEqual(['input']);
    const transactional = await oursBehind(await proxyOf(), topic);
    transactional.begin();
    await transactional.sendOffsets([{ topic, partition: 0, offset: 2n }], ours.groupMetadata());
    await transactional.abort();
    await expect.poll(() => ours.committed([{ topic, partition: 0 }]).catch(() => 'pending')).toEqual([]);
    ours.startFrom({ topic, partition: 0 }, 0n);
    expect(valuesOf(await readRecords(ours, 1))).toEqual(['input']);
  });

  it('S13: a transactional producer whose batches are never sent again on the quiet', async () => {
    // kafkajs refuses to switch its retries off for an idempotent producer, and they are what S4 and S5 are about.
    expect(() => kafka.producer({ transactionalId: unique('plain'), idempotent: true, retry: { retries: 0 } })).toThrow(/retries/);

    const topic = await topicOf();
    const proxy = await proxyOf();
    const ours = await oursBehind(proxy, topic);
    const lost = proxy.addRule({ api: 'Produce', action: 'closeAfter' });
    ours.begin();
    const values = Array.from({ length: 100 }, (_, i) => `${i}`);
    appendAll(ours, topic, values);
    const flushed = await ours.flush().then(
      () => true,
      () => false,
    );
    expect(lost.fired).toBe(1);
    if (flushed) await ours.commit();
    else await ours.abort();
    await commitValues(ours, topic, ['end']);
    await expect.poll(() => readValues(client, topic)).toEqual(flushed ? [...values, 'end'] : ['end']);
  });

  it('S14: PRODUCER_FENCED', async () => {
    const topic = await topicOf();
    const proxy = await proxyOf();
    const plain = await plainBehind(proxy);
    const transaction = await plain.transaction();
    await transaction.send({ topic, messages: [{ value: 'plain', partition: 0 }] });
    proxy.addRule({ api: 'EndTxn', action: 'answerError', errorCode: ErrorCode.PRODUCER_FENCED });
    await expect(transaction.commit()).rejects.toMatchObject({ type: 'KAFKAJS_UNKNOWN_ERROR_CODE' });

    const ours = await oursBehind(proxy, topic);
    ours.begin();
    appendAll(ours, topic, ['ours']);
    proxy.addRule({ api: 'EndTxn', action: 'answerError', errorCode: ErrorCode.PRODUCER_FENCED });
    await expect(ours.commit()).rejects.toThrow(FencedError);
  });
});
