import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { kafkaClient } from '../../../src/kafka/kafkajs/client.ts';
import type { KafkaClientConfig } from '../../../src/kafka/kafkajs/config.ts';
import { connectionConfig } from '../../../src/kafka/kafkajs/config.ts';
import { ClusterConnection } from '../../../src/kafka/kafkajs/connection.ts';
import { metadataExchange } from '../../../src/kafka/kafkajs/wire/metadata.ts';
import { FatalError } from '../../../src/model/errors.ts';
import { startBroker } from '../../support/stack.ts';
import { dealingAssignor, joinAndStart, readRecords } from '../suite/group.ts';
import { commitValues, valuesOf } from '../suite/log.ts';
import { Closing, unique } from '../suite/subject.ts';

const USER = { username: 'alice', password: 'secret1' };
const REAUTHENTICATION_MS = 12_000;

describe('TLS and SASL', () => {
  let broker: Awaited<ReturnType<typeof startBroker>>;
  beforeAll(async () => {
    broker = await startBroker({ secured: USER, settings: { 'connections.max.reauth.ms': String(REAUTHENTICATION_MS) } });
  }, 120_000);
  afterAll(() => broker.close());

  const secured = () => {
    if (broker.secured === undefined) throw new Error('the broker has no secured listeners');
    return broker.secured;
  };
  const ways: Record<string, () => KafkaClientConfig> = {
    TLS: () => ({ brokers: [secured().tls], ssl: { ca: secured().certificate } }),
    'SASL PLAIN': () => ({ brokers: [secured().sasl], sasl: { mechanism: 'plain', ...USER } }),
    'SCRAM-SHA-256': () => ({ brokers: [secured().sasl], sasl: { mechanism: 'scram-sha-256', ...USER } }),
    'SCRAM-SHA-256 over TLS': () => ({
      brokers: [secured().saslOverTls],
      ssl: { ca: secured().certificate },
      sasl: { mechanism: 'scram-sha-256', ...USER },
    }),
  };

  it.each(Object.keys(ways))('%s: a transaction is written and a group reads it', async (way) => {
    const client = kafkaClient(ways[way]!());
    const closing = new Closing();
    try {
      const topic = unique('secure');
      await closing.add(client.admin()).createTopics([{ topic, partitions: 1 }]);
      const producer = closing.add(client.transactionalProducer({ transactionalId: unique('txn') }));
      await producer.init();
      await producer.loadTopics([topic]);
      await commitValues(producer, topic, ['a', 'b']);
      const consumer = closing.add(
        client.groupConsumer({
          groupId: unique('group'),
          subscription: { topics: [topic] },
          assignor: dealingAssignor(),
          fetch: { maxWaitMs: 100 },
        }),
      );
      await joinAndStart(consumer);
      expect(valuesOf(await readRecords(consumer, 2))).toEqual(['a', 'b']);
    } finally {
      await closing.closeAll();
    }
  });

  it.each<[string, () => KafkaClientConfig, RegExp]>([
    [
      'a wrong password',
      () => ({ brokers: [secured().sasl], sasl: { mechanism: 'plain', ...USER, password: 'wrong' } }),
      /user and password/,
    ],
    [
      'a wrong SCRAM password',
      () => ({ brokers: [secured().sasl], sasl: { mechanism: 'scram-sha-256', ...USER, password: 'no' } }),
      /user and password/,
    ],
    ['a mechanism the broker lacks', () => ({ brokers: [secured().sasl], sasl: { mechanism: 'scram-sha-512', ...USER } }), /mechanism/],
    ['a certificate nobody vouches for', () => ({ brokers: [secured().tls], ssl: true }), /certificate/],
    [
      'a certificate for another host',
      () => ({ brokers: [secured().tls], ssl: { ca: secured().certificate, servername: 'elsewhere.example' } }),
      /certificate/,
    ],
  ])('%s is fatal, and said', async (_, config, message) => {
    const admin = kafkaClient(config()).admin();
    const started = performance.now();
    const asked = admin.partitionCounts();
    await expect(asked).rejects.toThrow(FatalError);
    await expect(asked).rejects.toThrow(message);
    expect(performance.now() - started).toBeLessThan(8_000);
    await admin.close();
  });

  it('logs in again before the broker ends the session, without losing a request or its order', { timeout: 60_000 }, async () => {
    const connection = new ClusterConnection(connectionConfig(ways['SCRAM-SHA-256']!()));
    try {
      const nodeId = (await connection.metadata([])).brokers[0]?.nodeId ?? -1;
      const until = performance.now() + REAUTHENTICATION_MS + 3_000;
      let next = 0;
      const answered: number[] = [];
      while (performance.now() < until) {
        await Promise.all(
          Array.from({ length: 5 }, async () => {
            const number = next++;
            await connection.send(nodeId, metadataExchange([]));
            answered.push(number);
          }),
        );
      }
      expect(answered).toEqual(Array.from({ length: next }, (__, i) => i));
    } finally {
      connection.close();
    }
  });
});
