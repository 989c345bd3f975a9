import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest';
import { KafkaAdmin } from '../../../src/kafka/kafkajs/admin.ts';
import { connectionConfig } from '../../../src/kafka/kafkajs/config.ts';
import { ClusterConnection } from '../../../src/kafka/kafkajs/connection.ts';
import { KafkaIdempotentProducer } from '../../../src/kafka/kafkajs/idempotent-producer.ts';
import { ErrorCode } from '../../../src/kafka/kafkajs/wire/error-code.ts';
import { initProducerIdExchange } from '../../../src/kafka/kafkajs/wire/init-producer-id.ts';
import { produceExchange } from '../../../src/kafka/kafkajs/wire/produce.ts';
import { RecordBatchEncoder } from '../../../src/kafka/kafkajs/wire/record-batch-encoder.ts';
import { advanceSequence } from '../../../src/kafka/kafkajs/wire/sequence.ts';
import type { ProducerOptions } from '../../../src/kafka/port.ts';
import { FatalError, RetriableError } from '../../../src/model/errors.ts';
import { NO_HEADERS } from '../../../src/model/headers.ts';
import { FaultProxy } from '../../support/fault-proxy.ts';
import { KEPT } from '../suite/subject.ts';
import { IndependentReader } from '../../support/independent-reader.ts';

const brokers = inject('kafkaBrokers');
const config = connectionConfig({ brokers: brokers.split(',') });
const closing: { close(): Promise<void> }[] = [];
let admin: KafkaAdmin;
let reader: IndependentReader;
let proxy: FaultProxy;
let topic: string;

beforeAll(async () => {
  admin = new KafkaAdmin(config);
  reader = await IndependentReader.open({ brokers, jars: inject('kafkaJars') });
});

afterAll(async () => {
  await reader.close();
  await admin.close();
});

beforeEach(async () => {
  topic = `idempotent-${randomUUID()}`;
  proxy = await FaultProxy.kafka(brokers.split(',')[0]!);
  await admin.createTopics([{ topic, partitions: 1, configs: KEPT }]);
});

afterEach(async () => {
  proxy.clearRules();
  await Promise.all(closing.splice(0).map((each) => each.close()));
  await proxy.close();
  await admin.deleteTopics([topic]);
});

async function producer(options: ProducerOptions = {}): Promise<KafkaIdempotentProducer> {
  const made = new KafkaIdempotentProducer(connectionConfig({ brokers: [proxy.address] }), { requestTimeoutMs: 1_000, ...options });
  closing.push(made);
  await made.loadTopics([topic]);
  await made.init();
  return made;
}

async function values(): Promise<string[]> {
  return (await reader.read(topic)).records.map(({ value }) => value?.toString() ?? '');
}

describe('an idempotent producer', () => {
  it('refuses records before it has an id', async () => {
    const made = new KafkaIdempotentProducer(config);
    closing.push(made);
    await made.loadTopics([topic]);
    expect(() => made.append(topic, 0, null, 'v', 1, NO_HEADERS)).toThrow(FatalError);
    await expect(made.flush()).rejects.toThrow(FatalError);
  });

  it.each([
    { action: 'closeAfter' },
    { action: 'closeBefore' },
    { action: 'dropResponse' },
    { action: 'answerError', errorCode: ErrorCode.NOT_LEADER_OR_FOLLOWER },
    { action: 'answerError', errorCode: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND },
  ] as const)('writes each record once when a Produce meets %o', async (fault) => {
    const it = await producer({ batchBytes: 1_000 });
    const rule = proxy.addRule({ api: 'Produce', nth: 2, times: 2, ...fault });
    const expected = Array.from({ length: 400 }, (_, i) => `value ${i}`);
    for (const value of expected) it.append(topic, 0, null, value, 1, NO_HEADERS);
    await it.flush();
    expect(rule.fired).toBe(2);
    expect(await values()).toEqual(expected);
  });

  it('is mended by init after its sequence was broken', async () => {
    const it = await producer();
    it.append(topic, 0, null, 'before', 1, NO_HEADERS);
    await it.flush();
    proxy.addRule({ api: 'Produce', action: 'answerError', errorCode: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER });
    it.append(topic, 0, null, 'lost', 1, NO_HEADERS);
    await expect(it.flush()).rejects.toThrow(RetriableError);
    expect(() => it.append(topic, 0, null, 'lost too', 1, NO_HEADERS)).toThrow(RetriableError);
    await it.init();
    expect(it.bufferedBytes).toBe(0);
    it.append(topic, 0, null, 'after', 1, NO_HEADERS);
    await it.flush();
    expect(await values()).toEqual(['before', 'after']);
  });

  it('drops what is not flushed when it is closed, and says so afterwards', async () => {
    const it = await producer();
    it.append(topic, 0, null, 'dropped', 1, NO_HEADERS);
    await it.close();
    await expect(it.flush()).rejects.toThrow(/closed/);
    expect(await values()).toEqual([]);
  });
});

describe('the sequence of a producer', () => {
  it('goes on behind 2^31 - 1 as the broker expects it', async () => {
    const connection = new ClusterConnection(config);
    await connection.metadata([topic]);
    const identity = await connection.sendToAny(initProducerIdExchange(null, 0));
    const encoder = new RecordBatchEncoder();
    // A partition that knows nothing of a producer takes any first sequence.
    let baseSequence = 2_147_483_640;
    const written: string[] = [];
    for (const count of [3, 7, 2, 4]) {
      encoder.reset();
      for (let i = 0; i < count; i++) {
        written.push(`${written.length}`);
        encoder.append(null, written.at(-1)!, 1, NO_HEADERS);
      }
      const bytes = encoder.seal({ ...identity, baseSequence, transactional: false });
      const { nodeId } = await connection.leader(topic, 0);
      const request = { version: 9, transactionalId: null, timeoutMs: 1_000, batches: [{ topic, partition: 0, bytes }] };
      expect((await connection.send(nodeId, produceExchange(request))).results[0]?.errorCode).toBe(ErrorCode.NONE);
      baseSequence = advanceSequence(baseSequence, count);
    }
    connection.close();
    expect(baseSequence).toBe(8);
    expect(await values()).toEqual(written);
  });
});
