import { randomUUID } from 'node:crypto';
import * as zlib from 'node:zlib';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest';
import { KafkaAdmin } from '../../../src/kafka/kafkajs/admin.ts';
import { connectionConfig, type TransactionVersion } from '../../../src/kafka/kafkajs/config.ts';
import { ClusterConnection } from '../../../src/kafka/kafkajs/connection.ts';
import { KafkaTransactionalProducer } from '../../../src/kafka/kafkajs/transactional-producer.ts';
import { endTxnExchange } from '../../../src/kafka/kafkajs/wire/end-txn.ts';
import { ErrorCode } from '../../../src/kafka/kafkajs/wire/error-code.ts';
import { produceExchange } from '../../../src/kafka/kafkajs/wire/produce.ts';
import { RecordBatchEncoder } from '../../../src/kafka/kafkajs/wire/record-batch-encoder.ts';
import type { GroupMetadata, TransactionalProducer, TransactionalProducerOptions } from '../../../src/kafka/port.ts';
import {
  FatalError,
  FencedError,
  OutcomeUnknownError,
  RecordTooLargeError,
  RetriableError,
  StaleGenerationError,
  TidemarkError,
} from '../../../src/model/errors.ts';
import { NO_HEADERS } from '../../../src/model/headers.ts';
import { FaultProxy } from '../../support/fault-proxy.ts';
import { KEPT } from '../suite/subject.ts';
import { IndependentReader, type IndependentRecord } from '../../support/independent-reader.ts';

/** For what comes by itself, on a busy machine too. */
const SOON = { timeout: 10_000, interval: 20 };
const brokers = inject('kafkaBrokers');
const closing: { close(): Promise<void> }[] = [];
let admin: KafkaAdmin;
let reader: IndependentReader;
let proxy: FaultProxy;
let topic: string;
let transactionalId: string;
let transactionVersion: TransactionVersion;

beforeAll(async () => {
  admin = new KafkaAdmin(connectionConfig({ brokers: brokers.split(',') }));
  reader = await IndependentReader.open({ brokers, jars: inject('kafkaJars') });
});

afterAll(async () => {
  await reader.close();
  await admin.close();
});

beforeEach(async () => {
  topic = `producer-${randomUUID()}`;
  transactionalId = `tx-${randomUUID()}`;
  proxy = await FaultProxy.kafka(brokers.split(',')[0]!);
  await admin.createTopics([{ topic, partitions: 2, configs: KEPT }]);
});

afterEach(async () => {
  proxy.clearRules();
  await Promise.all(closing.splice(0).map((each) => each.close()));
  await proxy.close();
  await admin.deleteTopics([topic]);
});

/** An initialised producer that knows the topic; through the proxy. */
async function producer(options: Partial<TransactionalProducerOptions> = {}): Promise<TransactionalProducer> {
  const made = new KafkaTransactionalProducer(connectionConfig({ brokers: [proxy.address], transactionVersion }), {
    transactionalId,
    requestTimeoutMs: 5_000,
    ...options,
  });
  closing.push(made);
  await made.loadTopics([topic]);
  await made.init();
  return made;
}

function append(to: TransactionalProducer, ...values: string[]): void {
  for (const value of values) to.append(topic, value.length % 2, null, value, 1_700_000_000_000, NO_HEADERS);
}

async function transaction(by: TransactionalProducer, ...values: string[]): Promise<void> {
  by.begin();
  append(by, ...values);
  await by.commit();
}

/** What a read-committed reader sees once no transaction is open: markers follow EndTxn after a moment. */
async function settledRecords(of = topic): Promise<readonly IndependentRecord[]> {
  const open = async (): Promise<boolean> => (await reader.ends(of)).some(({ lastStable, highWatermark }) => lastStable !== highWatermark);
  await expect.poll(open, { ...SOON, message: 'a transaction stays open' }).toBe(false);
  return (await reader.read(of)).records;
}

/** The values of each partition. */
async function committed(): Promise<string[][]> {
  const records = await settledRecords();
  return [0, 1].map((partition) =>
    records.filter((record) => record.partition === partition).map((record) => record.value?.toString() ?? ''),
  );
}

function anyMember(groupId: string): GroupMetadata {
  return { groupId, generation: -1, memberId: '', groupInstanceId: null };
}

/** Partition to offset. Where a transaction still holds one, it is missing: poll. */
async function offsetsOf(groupId: string): Promise<Record<number, bigint>> {
  return Object.fromEntries((await reader.groupOffsets(groupId)).map(({ partition, offset }) => [partition, offset]));
}

describe.each([1, 2] as const)('under transaction version %i', (version) => {
  beforeEach(() => {
    transactionVersion = version;
  });

  describe('a transactional producer', () => {
    it('shows what is committed, in order, and never what is aborted', async () => {
      const it = await producer();
      await transaction(it, 'a1', 'b12', 'c1', 'd12');
      it.begin();
      append(it, 'x1', 'x12');
      await it.flush();
      append(it, 'y1');
      await it.abort();
      await transaction(it, 'e1');
      expect(it.inTransaction).toBe(false);
      expect(await committed()).toEqual([
        ['a1', 'c1', 'e1'],
        ['b12', 'd12'],
      ]);
    });

    it('writes keys, values, headers and timestamps as they are', async () => {
      const it = await producer();
      it.begin();
      const headers = [
        { key: 'h', value: Buffer.from([0, 255]) },
        { key: 'h', value: null },
      ];
      it.append(topic, 0, 'ключ', '{"a":"é日😀"}', 1_700_000_000_123, headers);
      it.append(topic, 0, Buffer.from([0, 1, 2]), null, 1_600_000_000_000, NO_HEADERS);
      it.append(topic, 0, null, Buffer.alloc(0), 0, NO_HEADERS);
      await it.commit();
      const records = await settledRecords();
      expect(
        records.map(({ key, value, timestamp }) => [key?.toString('latin1') ?? null, value?.toString('utf8') ?? null, timestamp]),
      ).toEqual([
        [Buffer.from('ключ').toString('latin1'), '{"a":"é日😀"}', 1_700_000_000_123],
        ['\0\u0001\u0002', null, 1_600_000_000_000],
        [null, '', 0],
      ]);
      expect(records[0]?.headers).toEqual([
        { key: 'h', value: Buffer.from([0, 255]) },
        { key: 'h', value: null },
      ]);
    });

    it('sends nothing for an empty transaction', async () => {
      const it = await producer();
      it.begin();
      await it.commit();
      it.begin();
      await it.abort();
      it.begin();
      await it.sendOffsets([], anyMember('nobody'));
      await it.flush();
      await it.commit();
      expect([proxy.requests('EndTxn'), proxy.requests('AddPartitionsToTxn'), proxy.requests('Produce')]).toEqual([0, 0, 0]);
    });

    it('sends nothing for a record that is dropped before it was sent', async () => {
      const it = await producer();
      it.begin();
      append(it, 'gone');
      await it.abort();
      await transaction(it, 'kept');
      expect(await committed()).toEqual([['kept'], []]);
      expect(proxy.requests('EndTxn')).toBe(1);
    });

    it('cuts batches by bytes and never above max.message.bytes', async () => {
      const small = `producer-small-${randomUUID()}`;
      await admin.createTopics([{ topic: small, partitions: 1, configs: { ...KEPT, 'max.message.bytes': '10000' } }]);
      const it = await producer();
      await it.loadTopics([small]);
      it.begin();
      const values = Array.from({ length: 300 }, (_, i) => `${i}-${'é'.repeat(i % 200)}`);
      for (const value of values) it.append(small, 0, 'k', value, 1, NO_HEADERS);
      await it.commit();
      expect((await settledRecords(small)).map(({ value }) => value?.toString())).toEqual(values);
      await admin.deleteTopics([small]);
    });

    it('refuses a record that no batch can take, and takes the largest that one can', async () => {
      const it = await producer();
      const limit = it.maxRecordBytes(topic);
      const overhead = it.recordBytes(null, 'x'.repeat(1_000_000), NO_HEADERS) - 1_000_000;
      it.begin();
      append(it, 'before');
      const tooLarge = 'x'.repeat(limit - overhead + 1);
      expect(it.recordBytes(null, tooLarge, NO_HEADERS)).toBe(limit + 1);
      expect(() => it.append(topic, 0, null, tooLarge, 1, NO_HEADERS)).toThrow(RecordTooLargeError);
      it.append(topic, 0, null, tooLarge.slice(1), 1, NO_HEADERS);
      append(it, 'behind');
      await it.commit();
      expect((await committed())[0]?.map((value) => value.length)).toEqual([6, limit - overhead, 6]);
    });

    it.each(['gzip', 'snappy', 'lz4', ...('zstdCompressSync' in zlib ? ['zstd' as const] : [])] as const)(
      'writes %s so that the Java client reads it',
      async (compression) => {
        const it = await producer({ compression });
        const values = Array.from({ length: 5_000 }, (_, i) => `value-${i}-${'abc'.repeat(i % 50)}`.padEnd(2 + 2 * (i % 40), 'x'));
        it.begin();
        for (const value of values) it.append(topic, 0, 'k', value, 1, NO_HEADERS);
        it.append(topic, 0, null, Buffer.from([7]), 1, NO_HEADERS);
        await it.commit();
        expect((await committed())[0]).toEqual([...values, '\u0007']);
      },
    );

    it('names a topic that does not exist', async () => {
      const it = await producer();
      await expect(it.loadTopics([topic, 'no-such-topic'])).rejects.toThrow(/'no-such-topic' does not exist/);
      expect(it.partitionCount(topic)).toBe(2);
      expect(it.partitionCount('no-such-topic')).toBeUndefined();
      it.begin();
      expect(() => it.append('no-such-topic', 0, null, 'v', 1, NO_HEADERS)).toThrow(FatalError);
      expect(() => it.append(topic, 2, null, 'v', 1, NO_HEADERS)).toThrow(FatalError);
    });

    it('refuses calls out of order', async () => {
      const it = await producer();
      expect(() => append(it, 'a')).toThrow(FatalError);
      await expect(it.commit()).rejects.toThrow(FatalError);
      await expect(it.abort()).rejects.toThrow(FatalError);
      it.begin();
      expect(() => it.begin()).toThrow(FatalError);
    });

    it('aborts on close what is open', async () => {
      const it = await producer({ transactionTimeoutMs: 60_000 });
      it.begin();
      append(it, 'lost');
      await it.flush();
      await it.close();
      expect(await committed()).toEqual([[], []]);
      await expect(it.init()).rejects.toThrow(FatalError);
    });
  });

  describe('a predecessor with the same transactional id', () => {
    it('is fenced, and its transaction aborted at once', async () => {
      const zombie = await producer({ transactionTimeoutMs: 60_000 });
      zombie.begin();
      append(zombie, 'zombie');
      await zombie.flush();
      const successor = await producer();
      expect(await committed()).toEqual([[], []]);
      await transaction(successor, 'successor');
      await expect(zombie.commit()).rejects.toThrow(FencedError);
      await expect(zombie.abort()).rejects.toThrow(FencedError);
      expect(await committed()).toEqual([[], ['successor']]);
    });

    it('is fenced when it produces', async () => {
      const zombie = await producer();
      await transaction(zombie, 'before');
      const successor = await producer();
      zombie.begin();
      append(zombie, 'zombie');
      await expect(zombie.flush()).rejects.toThrow(FencedError);
      expect(() => append(zombie, 'zombie')).toThrow(FencedError);
      await expect(zombie.ready()).rejects.toThrow(FencedError);
      await expect(zombie.commit()).rejects.toThrow(FencedError);
      await transaction(successor, 'successor');
      expect(await committed()).toEqual([['before'], ['successor']]);
    });

    it('may take over again, which fences the other', async () => {
      const one = await producer();
      const other = await producer();
      await one.init();
      other.begin();
      append(other, 'other');
      await expect(other.commit()).rejects.toThrow(FencedError);
      await transaction(one, 'once');
      expect(await committed()).toEqual([['once'], []]);
    });
  });

  describe('a transaction that the broker has timed out', () => {
    it('is over, and init goes on', async () => {
      const it = await producer({ transactionTimeoutMs: 1_000 });
      it.begin();
      append(it, 'late');
      await it.flush();
      await expect.poll(async () => (await reader.openTransactions(topic)).length, { ...SOON, timeout: 20_000 }).toBe(0);
      await expect(it.commit()).rejects.toThrow(version === 1 ? FencedError : RetriableError);
      expect(() => it.begin()).toThrow(TidemarkError);
      await it.init();
      await transaction(it, 'afterwards');
      expect(await committed()).toEqual([['afterwards'], []]);
    });
  });

  describe('a lost answer to EndTxn', () => {
    it.each([
      ['closeAfter', [['one1', 'again1'], []]],
      ['dropResponse', [['one1', 'again1'], []]],
      ['closeOnForward', [['one1', 'again1'], []]],
      ['closeBefore', [['again1'], []]],
      ['dropRequest', [['again1'], []]],
    ] as const)('%s: the outcome is unknown until init', async (action, expected) => {
      const it = await producer({ requestTimeoutMs: 700 });
      const rule = proxy.addRule({ api: 'EndTxn', action });
      await expect(transaction(it, 'one1')).rejects.toThrow(OutcomeUnknownError);
      expect(it.inTransaction).toBe(true);
      expect(() => it.begin()).toThrow(OutcomeUnknownError);
      expect(() => append(it, 'two1')).toThrow(OutcomeUnknownError);
      await expect(it.commit()).rejects.toThrow(OutcomeUnknownError);
      await expect(it.abort()).rejects.toThrow(OutcomeUnknownError);
      expect(rule.seen).toBe(1);
      await it.init();
      expect(it.inTransaction).toBe(false);
      await transaction(it, 'again1');
      expect(await committed()).toEqual(expected);
    });

    it('cannot end a later transaction late', async () => {
      const it = await producer();
      proxy.addRule({ api: 'EndTxn', action: 'closeBefore' });
      it.begin();
      append(it, 'one1');
      await it.flush();
      const [first] = await reader.openTransactions(topic);
      await expect(it.commit()).rejects.toThrow(OutcomeUnknownError);
      await it.init();
      it.begin();
      append(it, 'two1');
      await it.flush();

      const raw = new ClusterConnection(connectionConfig({ brokers: brokers.split(',') }));
      const nodeId = await raw.coordinator('transaction', transactionalId);
      const late = await raw.send(nodeId, endTxnExchange(version === 1 ? 1 : 5, transactionalId, first!, true));
      raw.close();
      expect([ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED]).toContain(late.errorCode);
      await it.abort();
      await transaction(it, 'three');
      expect(await committed()).toEqual([[], ['three']]);
    });

    it.each(['closeAfter', 'closeBefore'] as const)('%s: an abort takes a new epoch instead', async (action) => {
      const it = await producer();
      const rule = proxy.addRule({ api: 'EndTxn', action });
      it.begin();
      append(it, 'gone');
      await it.flush();
      await it.abort();
      expect(rule.fired).toBe(1);
      await transaction(it, 'kept');
      expect(await committed()).toEqual([['kept'], []]);
    });

    it('is unknown too when the coordinator moved in between and cannot be asked again', async () => {
      const it = await producer({ transactionTimeoutMs: 1_000, requestTimeoutMs: 500 });
      proxy.addRule({ api: 'EndTxn', action: 'answerError', errorCode: ErrorCode.NOT_COORDINATOR, times: Infinity });
      await expect(transaction(it, 'one1')).rejects.toThrow(OutcomeUnknownError);
    });
  });

  describe('what the coordinator is not ready for', () => {
    const requests = [
      ['EndTxn', ErrorCode.CONCURRENT_TRANSACTIONS],
      ['EndTxn', ErrorCode.NOT_COORDINATOR],
      ['InitProducerId', ErrorCode.CONCURRENT_TRANSACTIONS],
      ['InitProducerId', ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
      ['TxnOffsetCommit', ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
      ['TxnOffsetCommit', ErrorCode.NOT_COORDINATOR],
    ] as const;
    const ofVersion1 = [
      ['AddPartitionsToTxn', ErrorCode.CONCURRENT_TRANSACTIONS],
      ['AddPartitionsToTxn', ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
      ['AddPartitionsToTxn', ErrorCode.NOT_COORDINATOR],
      ['AddOffsetsToTxn', ErrorCode.CONCURRENT_TRANSACTIONS],
      ['AddOffsetsToTxn', ErrorCode.COORDINATOR_NOT_AVAILABLE],
    ] as const;
    const ofVersion2 = [
      ['Produce', ErrorCode.CONCURRENT_TRANSACTIONS],
      ['TxnOffsetCommit', ErrorCode.CONCURRENT_TRANSACTIONS],
    ] as const;
    it.each([...requests, ...(version === 1 ? ofVersion1 : ofVersion2)])('%s is asked again after error %i', async (api, errorCode) => {
      const group = `group-${randomUUID()}`;
      const rule = proxy.addRule({ api, action: 'answerError', errorCode, times: 3 });
      const it = await producer();
      it.begin();
      append(it, 'once');
      await it.flush();
      await it.sendOffsets([{ topic, partition: 0, offset: 5n }], anyMember(group));
      await it.commit();
      await transaction(it, 'more');
      expect(rule.fired).toBe(3);
      expect(await committed()).toEqual([['once', 'more'], []]);
      await expect.poll(() => offsetsOf(group), SOON).toEqual({ 0: 5n });
    });

    it.each(version === 1 ? ['AddPartitionsToTxn', 'AddOffsetsToTxn', 'InitProducerId'] : ['InitProducerId'])(
      'a lost answer of %s changes nothing',
      async (api) => {
        const group = `group-${randomUUID()}`;
        const rule = proxy.addRule({ api, action: 'closeAfter' });
        const it = await producer();
        it.begin();
        append(it, 'once');
        await it.flush();
        await it.sendOffsets([{ topic, partition: 0, offset: 5n }], anyMember(group));
        await it.commit();
        await transaction(it, 'more');
        expect(rule.fired).toBe(1);
        expect(await committed()).toEqual([['once', 'more'], []]);
        await expect.poll(() => offsetsOf(group), SOON).toEqual({ 0: 5n });
      },
    );

    it('gives up when the transaction would have timed out', async () => {
      const it = await producer({ transactionTimeoutMs: 500, requestTimeoutMs: 500, deliveryTimeoutMs: 1_000 });
      const api = version === 1 ? 'AddPartitionsToTxn' : 'Produce';
      proxy.addRule({ api, action: 'answerError', errorCode: ErrorCode.CONCURRENT_TRANSACTIONS, times: Infinity });
      it.begin();
      append(it, 'gone');
      await expect(it.flush()).rejects.toThrow(RetriableError);
      proxy.clearRules();
      await it.abort();
      await transaction(it, 'kept');
      expect(await committed()).toEqual([['kept'], []]);
    });
  });

  describe('offsets in a transaction', () => {
    it('are committed with it, and not with one that is aborted', async () => {
      const group = `group-${randomUUID()}`;
      const it = await producer();
      it.begin();
      append(it, 'out1');
      await it.flush();
      await it.sendOffsets([{ topic, partition: 1, offset: 7n, leaderEpoch: 3, metadata: 'stream time 12' }], anyMember(group));
      await it.commit();
      it.begin();
      await it.sendOffsets([{ topic, partition: 0, offset: 9n }], anyMember(group));
      await it.abort();
      await it.init();
      await expect
        .poll(() => reader.groupOffsets(group))
        .toEqual([{ topic, partition: 1, offset: 7n, leaderEpoch: 3, metadata: 'stream time 12' }]);
    });

    it('alone make a transaction', async () => {
      const group = `group-${randomUUID()}`;
      const it = await producer();
      it.begin();
      await it.sendOffsets([{ topic, partition: 0, offset: 1n }], anyMember(group));
      await expect(it.sendOffsets([{ topic, partition: 0, offset: 2n }], anyMember(group))).rejects.toThrow(FatalError);
      await it.commit();
      await expect.poll(() => offsetsOf(group), SOON).toEqual({ 0: 1n });
    });

    it('of a generation that is over are refused, and nothing but abort is possible', async () => {
      const group = { ...anyMember(`group-${randomUUID()}`), generation: 4, memberId: 'zombie' };
      const it = await producer();
      it.begin();
      append(it, 'zombie');
      await it.flush();
      await expect(it.sendOffsets([{ topic, partition: 0, offset: 1n }], group)).rejects.toThrow(StaleGenerationError);
      await expect(it.commit()).rejects.toThrow(StaleGenerationError);
      expect(() => append(it, 'zombie')).toThrow(StaleGenerationError);
      await it.abort();
      await transaction(it, 'fresh1');
      expect(await committed()).toEqual([['fresh1'], []]);
    });

    it.each([ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.ILLEGAL_GENERATION])(
      'error %i says that the generation is over',
      async (errorCode) => {
        proxy.addRule({ api: 'TxnOffsetCommit', action: 'answerError', errorCode });
        const it = await producer();
        it.begin();
        const sending = it.sendOffsets([{ topic, partition: 0, offset: 1n }], anyMember(`group-${randomUUID()}`));
        await expect(sending).rejects.toThrow(StaleGenerationError);
        await it.abort();
      },
    );

    it('whose answer is lost are never committed without the outputs of a second attempt', async () => {
      const group = `group-${randomUUID()}`;
      proxy.addRule({ api: 'TxnOffsetCommit', action: 'closeAfter' });
      const it = await producer();
      const attempt = async (partition: number): Promise<void> => {
        it.begin();
        append(it, 'once');
        await it.flush();
        await it.sendOffsets([{ topic, partition, offset: 1n }], anyMember(group));
      };
      await expect(attempt(0)).rejects.toThrow(RetriableError);
      await expect(it.commit()).rejects.toThrow(RetriableError);
      await it.abort();
      await attempt(1);
      await it.commit();
      expect(await committed()).toEqual([['once'], []]);
      await expect.poll(() => offsetsOf(group), SOON).toEqual({ 1: 1n });
    });
  });

  describe('a faulty Produce', () => {
    it.each([
      { action: 'closeAfter' },
      { action: 'closeBefore' },
      { action: 'closeOnForward' },
      { action: 'dropResponse' },
      { action: 'answerError', errorCode: ErrorCode.NOT_LEADER_OR_FOLLOWER },
      { action: 'answerError', errorCode: ErrorCode.NOT_ENOUGH_REPLICAS },
      { action: 'answerError', errorCode: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION },
      { action: 'answerError', errorCode: ErrorCode.KAFKA_STORAGE_ERROR },
    ] as const)('%o: nothing is missing and nothing doubled', async (fault) => {
      const it = await producer({ batchBytes: 2_000, requestTimeoutMs: 1_000 });
      const rule = proxy.addRule({ api: 'Produce', nth: 2, times: 2, ...fault });
      const values = Array.from({ length: 500 }, (_, i) => `${i}`.padStart(20 + (i % 2), '0'));
      it.begin();
      for (const value of values) {
        append(it, value);
        await it.ready();
      }
      await it.flush();
      await it.commit();
      expect(rule.fired).toBe(2);
      expect(await committed()).toEqual([values.filter((v) => v.length === 20), values.filter((v) => v.length === 21)]);
    });

    it.each([
      [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, RetriableError],
      [ErrorCode.UNKNOWN_PRODUCER_ID, RetriableError],
      [ErrorCode.INVALID_TXN_STATE, RetriableError],
      [ErrorCode.TOPIC_AUTHORIZATION_FAILED, FatalError],
    ] as const)('error %i ends the transaction; abort makes the producer whole', async (errorCode, type) => {
      const it = await producer();
      await transaction(it, 'one1');
      proxy.addRule({ api: 'Produce', action: 'answerError', errorCode });
      it.begin();
      append(it, 'gone');
      await expect(it.flush()).rejects.toThrow(type);
      await expect(it.commit()).rejects.toThrow(type);
      await it.abort();
      await transaction(it, 'two1');
      expect(await committed()).toEqual([['one1', 'two1'], []]);
    });

    it('answered with a stale epoch is a fence; init takes over again', async () => {
      const it = await producer();
      proxy.addRule({ api: 'Produce', action: 'answerError', errorCode: ErrorCode.INVALID_PRODUCER_EPOCH });
      it.begin();
      append(it, 'gone');
      await expect(it.commit()).rejects.toThrow(FencedError);
      await it.init();
      await transaction(it, 'kept');
      expect(await committed()).toEqual([['kept'], []]);
    });

    it('fails when its time is over, names the partition, and is gone after abort', async () => {
      const it = await producer({ deliveryTimeoutMs: 700, requestTimeoutMs: 300 });
      proxy.addRule({ api: 'Produce', action: 'closeBefore', times: Infinity });
      it.begin();
      append(it, 'gone');
      await expect(it.flush()).rejects.toThrow(new RegExp(`${topic}/0 was not acknowledged within deliveryTimeoutMs`));
      proxy.clearRules();
      await it.abort();
      await transaction(it, 'kept');
      expect(await committed()).toEqual([['kept'], []]);
    });

    it('that is still under way when the transaction is aborted cannot land in a later one', async () => {
      const it = await producer({ requestTimeoutMs: 500 });
      it.begin();
      append(it, 'first!');
      await it.flush();
      const [first] = await reader.openTransactions(topic);
      await it.commit();
      const dropped = proxy.addRule({ api: 'Produce', action: 'dropRequest', times: Infinity });
      it.begin();
      append(it, 'late');
      const flushed = it.flush().catch((error: unknown) => error);
      await dropped.waitFired();
      await it.abort();
      expect(await flushed).toBeInstanceOf(RetriableError);
      proxy.clearRules();
      it.begin();
      append(it, 'next');
      await it.flush();

      // The request that the proxy has swallowed, as a slow network would deliver it now.
      const identity = { producerId: first!.producerId, producerEpoch: first!.producerEpoch + (version === 1 ? 0 : 1) };
      const encoder = new RecordBatchEncoder();
      encoder.append(null, 'late', 1, NO_HEADERS);
      const bytes = encoder.seal({ ...identity, baseSequence: version === 1 ? 1 : 0, transactional: true });
      const raw = new ClusterConnection(connectionConfig({ brokers: brokers.split(',') }));
      const { nodeId } = await raw.leader(topic, 0);
      const batches = [{ topic, partition: 0, bytes }];
      const request = produceExchange({ version: version === 1 ? 11 : 12, transactionalId, timeoutMs: 1_000, batches });
      const [late] = (await raw.send(nodeId, request)).results;
      raw.close();
      expect([ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED]).toContain(late?.errorCode);
      await it.commit();
      expect(await committed()).toEqual([['first!', 'next'], []]);
    });
  });

  describe('the fail point end-txn-sent', () => {
    it('stands after the request has left and before its answer', async () => {
      const seen: string[] = [];
      const it = await producer({
        failPoints: async (name) => {
          await rule.waitSeen(1, 5_000);
          seen.push(name);
        },
      });
      const rule = proxy.addRule({ api: 'EndTxn', action: 'delayResponse', ms: 200 });
      it.begin();
      append(it, 'once');
      let over = false;
      const commit = (async () => {
        await it.commit();
        over = true;
      })();
      await expect.poll(() => seen, { ...SOON, interval: 5 }).toEqual(['end-txn-sent']);
      expect(over).toBe(false);
      await commit;
      it.begin();
      append(it, 'gone');
      await it.abort();
      expect(seen).toEqual(['end-txn-sent']);
    });

    it('makes commit throw what it throws', async () => {
      let armed = true;
      const it = await producer({
        failPoints: () => {
          if (armed) throw new RetriableError('stop here');
        },
      });
      await expect(transaction(it, 'once')).rejects.toThrow('stop here');
      armed = false;
      await it.init();
      await transaction(it, 'more');
      expect(await committed()).toEqual([['once', 'more'], []]);
    });
  });

  describe('the epoch', () => {
    it(`is ${version === 1 ? 'kept' : 'raised'} from one transaction to the next`, async () => {
      const it = await producer();
      const epochs: number[] = [];
      for (const end of ['commit', 'abort', 'commit'] as const) {
        it.begin();
        append(it, end);
        await it.flush();
        epochs.push((await reader.openTransactions(topic))[0]!.producerEpoch);
        await it[end]();
      }
      const [first = -1] = epochs;
      expect(epochs).toEqual(version === 1 ? [first, first, first] : [first, first + 1, first + 2]);
      expect(await committed()).toEqual([['commit', 'commit'], []]);
    });
  });
});

it('names the partition that cannot be added to the transaction', async () => {
  transactionVersion = 1;
  const it = await producer();
  const errorCode = ErrorCode.TOPIC_AUTHORIZATION_FAILED;
  proxy.addRule({ api: 'AddPartitionsToTxn', action: 'answerError', errorCode });
  it.begin();
  append(it, 'gone');
  await expect(it.flush()).rejects.toThrow(`${topic}/0`);
  await it.abort();
  await transaction(it, 'kept');
  expect(await committed()).toEqual([['kept'], []]);
});
