import { afterEach, describe, expect, inject, it } from 'vitest';
import { kafkaClient } from '../../../src/kafka/kafkajs/client.ts';
import { connectionConfig } from '../../../src/kafka/kafkajs/config.ts';
import { ClusterConnection } from '../../../src/kafka/kafkajs/connection.ts';
import { fetchExchange } from '../../../src/kafka/kafkajs/wire/fetch.ts';
import { NO_HEADERS } from '../../../src/model/headers.ts';
import { readLog, valuesOf } from '../suite/log.ts';
import { Closing, unique } from '../suite/subject.ts';
import { plainKafka, readWithKafkaJs } from './plain.ts';

describe('reading a compacted log beside plain kafkajs', () => {
  const brokers = inject('kafkaBrokers');
  const client = kafkaClient({ brokers: brokers.split(',') });
  const closing = new Closing();
  afterEach(() => closing.closeAll());

  it('S9: the empty batch that compaction keeps for the last sequence of a producer', { timeout: 120_000 }, async () => {
    const topic = unique('compacted');
    await closing.add(client.admin()).createTopics([
      {
        topic,
        partitions: 1,
        configs: { 'cleanup.policy': 'compact', 'segment.ms': '50', 'min.cleanable.dirty.ratio': '0.001', 'max.compaction.lag.ms': '50' },
      },
    ]);
    // Another producer each time, so that each batch is the last one of its producer; only the newest value of the key survives.
    for (const value of ['overwritten', 'newest', 'rolls the segment']) {
      const producer = closing.add(client.idempotentProducer());
      await producer.init();
      await producer.loadTopics([topic]);
      producer.append(topic, 0, value === 'rolls the segment' ? 'other' : 'key', value, Date.now(), NO_HEADERS);
      await producer.flush();
      const written = Date.now();
      await expect.poll(() => Date.now() - written).toBeGreaterThan(100);
    }
    await expect.poll(() => recordCountOfFirstBatch(topic), { timeout: 60_000, interval: 300 }).toBe(0);

    const plain = await readWithKafkaJs(plainKafka(brokers), topic, {
      groupId: unique('plain'),
      from: 0n,
      end: 3n,
      maxBytesPerPartition: 1,
      deadlineMs: 4_000,
    });
    expect(plain).toEqual({ messages: [], reachedEnd: false });
    const ours = await readLog(client, topic, { fetch: { maxPartitionBytes: 1 } });
    expect(valuesOf(ours)).toEqual(['newest', 'rolls the segment']);
  });

  async function recordCountOfFirstBatch(topic: string): Promise<number> {
    const connection = new ClusterConnection(connectionConfig({ brokers: brokers.split(',') }));
    try {
      const { nodeId, epoch } = await connection.leader(topic, 0);
      const answer = await connection.send(
        nodeId,
        fetchExchange({
          maxWaitMs: 10,
          minBytes: 1,
          maxBytes: 1 << 20,
          isolation: 'read-uncommitted',
          partitions: [{ topic, partition: 0, leaderEpoch: epoch, offset: 0n, maxBytes: 1 << 20 }],
        }),
      );
      return answer.partitions[0]?.records.readInt32BE(57) ?? -1;
    } finally {
      connection.close();
    }
  }
});
