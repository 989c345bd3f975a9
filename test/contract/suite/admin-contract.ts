import { afterEach, describe, expect, it } from 'vitest';
import { FatalError } from '../../../src/model/errors.ts';
import { appendAll, bounds, commitValues, readValues } from './log.ts';
import { Closing, KEPT, unique, type Subject } from './subject.ts';

export function adminContract(subject: () => Subject): void {
  describe('Admin', () => {
    const closing = new Closing();
    afterEach(() => closing.closeAll());
    const admin = () => closing.add(subject().client.admin());

    it('creates topics that can be used at once, and leaves those that exist as they are', async () => {
      const topic = unique('created');
      const configs = { 'retention.ms': '1234567' };
      await admin().createTopics([{ topic, partitions: 3, configs }]);
      await admin().createTopics([{ topic, partitions: 7, configs: { 'retention.ms': '1' } }]);
      expect(await admin().partitionCounts([topic, unique('absent')])).toEqual(new Map([[topic, 3]]));
      expect((await admin().partitionCounts()).get(topic)).toBe(3);
      expect((await admin().topicConfigs(topic)).get('retention.ms')).toBe('1234567');
      const producer = closing.add(subject().client.idempotentProducer());
      await producer.init();
      await producer.loadTopics([topic]);
      appendAll(producer, topic, ['used'], 2);
      await producer.flush();
      expect(await readValues(subject().client, topic)).toEqual(['used']);
    });

    it('says what is wrong with a topic that cannot be created', async () => {
      const topic = unique('impossible');
      await expect(admin().createTopics([{ topic, partitions: 1, replicationFactor: 99 }])).rejects.toThrow(FatalError);
      await expect(admin().createTopics([{ topic, partitions: 1, configs: { 'no.such.config': '1' } }])).rejects.toThrow(topic);
      expect(await admin().partitionCounts([topic])).toEqual(new Map());
    });

    it('deletes topics, and takes one that is gone for deleted', async () => {
      const topic = unique('deleted');
      await admin().createTopics([{ topic, partitions: 1, configs: KEPT }]);
      await admin().deleteTopics([topic]);
      expect(await admin().partitionCounts([topic])).toEqual(new Map());
      await admin().deleteTopics([topic]);
    });

    it('tells the bounds of a log, and that a transaction is open in it', async () => {
      const topic = unique('bounds');
      await admin().createTopics([{ topic, partitions: 1, configs: KEPT }]);
      expect(await bounds(subject().client, topic)).toEqual({ start: 0n, lastStable: 0n, highWatermark: 0n });
      const producer = closing.add(subject().client.transactionalProducer({ transactionalId: unique('bounds') }));
      await producer.init();
      await producer.loadTopics([topic]);
      await commitValues(producer, topic, ['a', 'b']);
      await expect.poll(() => bounds(subject().client, topic)).toEqual({ start: 0n, lastStable: 3n, highWatermark: 3n });
      producer.begin();
      appendAll(producer, topic, ['open']);
      await producer.flush();
      expect(await bounds(subject().client, topic)).toEqual({ start: 0n, lastStable: 3n, highWatermark: 4n });
      await producer.abort();
      await expect.poll(() => bounds(subject().client, topic)).toEqual({ start: 0n, lastStable: 5n, highWatermark: 5n });
    });

    it('deletes records below an offset', async () => {
      const topic = unique('cut');
      await admin().createTopics([{ topic, partitions: 1, configs: KEPT }]);
      const producer = closing.add(subject().client.idempotentProducer());
      await producer.init();
      await producer.loadTopics([topic]);
      appendAll(producer, topic, ['a', 'b', 'c']);
      await producer.flush();
      await admin().deleteRecords([{ topic, partition: 0, offset: 2n }]);
      expect(await bounds(subject().client, topic)).toEqual({ start: 2n, lastStable: 3n, highWatermark: 3n });
      expect(await readValues(subject().client, topic)).toEqual(['c']);
    });

    it('names the topic that does not exist', async () => {
      const topic = unique('absent');
      await expect(admin().topicConfigs(topic)).rejects.toThrow(FatalError);
      await expect(admin().topicConfigs(topic)).rejects.toThrow(topic);
      await expect(admin().logBounds(topic)).rejects.toThrow(topic);
    });
  });
}
