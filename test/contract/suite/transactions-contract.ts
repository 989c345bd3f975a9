import { afterEach, describe, expect, it } from 'vitest';
import type {
  GroupConsumer,
  GroupMetadata,
  KafkaClient,
  TransactionalProducer,
  TransactionalProducerOptions,
} from '../../../src/kafka/port.ts';
import { FencedError, OutcomeUnknownError, RetriableError, StaleGenerationError, TidemarkError } from '../../../src/model/errors.ts';
import { dealingAssignor, joinAndStart, nextEvent } from './group.ts';
import { appendAll, bounds, commitValues, readValues } from './log.ts';
import { Closing, KEPT, unique, type Subject, type Traits } from './subject.ts';

/** Kafka's codes, as the protocol guide numbers them. */
const NOT_COORDINATOR = 16;
const CONCURRENT_TRANSACTIONS = 51;
const PRODUCER_FENCED = 90;

export function transactionsContract(subject: () => Subject, { transactionVersion }: Traits): void {
  const adding = transactionVersion === 1 ? ['AddPartitionsToTxn', 'AddOffsetsToTxn'] : ['Produce', 'TxnOffsetCommit'];

  describe('TransactionalProducer', () => {
    const closing = new Closing();
    afterEach(() => closing.closeAll());

    async function topicOf(): Promise<string> {
      const topic = unique('transacted');
      await closing.add(subject().client.admin()).createTopics([{ topic, partitions: 1, configs: KEPT }]);
      return topic;
    }

    async function producerFor(
      topic: string,
      client: KafkaClient,
      options: Partial<TransactionalProducerOptions> = {},
    ): Promise<TransactionalProducer> {
      const producer = closing.add(client.transactionalProducer({ transactionalId: unique('txn'), requestTimeoutMs: 5_000, ...options }));
      await producer.init();
      await producer.loadTopics([topic]);
      return producer;
    }

    /** A member of a group that reads `topic`, after its first assignment. */
    async function member(topic: string, groupId: string): Promise<GroupConsumer> {
      const consumer = closing.add(
        subject().client.groupConsumer({
          groupId,
          subscription: { topics: [topic] },
          assignor: dealingAssignor(),
          heartbeatIntervalMs: 200,
        }),
      );
      await joinAndStart(consumer);
      return consumer;
    }

    async function groupOffset(groupId: string, topic: string): Promise<bigint | undefined> {
      const [found] = await closing.add(subject().client.admin()).groupOffsets(groupId, [topic]);
      return found?.offset;
    }

    it('shows a committed transaction whole, and an aborted one not at all', async () => {
      const topic = await topicOf();
      const producer = await producerFor(topic, subject().client);
      producer.begin();
      appendAll(producer, topic, ['a', 'b']);
      await producer.flush();
      expect(await readValues(subject().client, topic)).toEqual([]);
      appendAll(producer, topic, ['c']);
      await producer.commit();
      await expect.poll(() => readValues(subject().client, topic)).toEqual(['a', 'b', 'c']);
      producer.begin();
      appendAll(producer, topic, ['dropped']);
      await producer.flush();
      await producer.abort();
      await commitValues(producer, topic, ['d']);
      await expect.poll(() => readValues(subject().client, topic)).toEqual(['a', 'b', 'c', 'd']);
      expect(await readValues(subject().client, topic, { isolation: 'read-uncommitted' })).toEqual(['a', 'b', 'c', 'dropped', 'd']);
    });

    it('costs nothing when nothing was sent', async () => {
      const topic = await topicOf();
      const producer = await producerFor(topic, subject().client);
      producer.begin();
      await producer.commit();
      producer.begin();
      await producer.abort();
      expect(await bounds(subject().client, topic)).toMatchObject({ highWatermark: 0n });
      await commitValues(producer, topic, ['a']);
      await expect.poll(() => readValues(subject().client, topic)).toEqual(['a']);
    });

    it('does a hundred transactions in a row', async () => {
      const topic = await topicOf();
      const producer = await producerFor(topic, subject().client);
      const values = Array.from({ length: 100 }, (_, i) => `${i}`);
      for (const value of values) await commitValues(producer, topic, [value]);
      await expect.poll(() => readValues(subject().client, topic)).toEqual(values);
    });

    it.each([...adding, 'InitProducerId'])('waits while %s answers CONCURRENT_TRANSACTIONS', async (api) => {
      const topic = await topicOf();
      const groupId = unique('group');
      const consumer = await member(topic, groupId);
      const disturbed = closing.add(await subject().disturbed());
      const refused = disturbed.faults.refuse(api, CONCURRENT_TRANSACTIONS, 3);
      const producer = await producerFor(topic, disturbed.client);
      producer.begin();
      appendAll(producer, topic, ['a']);
      await producer.flush();
      await producer.sendOffsets([{ topic, partition: 0, offset: 1n }], consumer.groupMetadata());
      await producer.commit();
      expect(refused.fired).toBe(3);
      await expect.poll(() => readValues(subject().client, topic)).toEqual(['a']);
      expect(await groupOffset(groupId, topic)).toBe(1n);
    });

    it.each(transactionVersion === 1 ? [...adding, 'EndTxn', 'TxnOffsetCommit'] : ['EndTxn', 'TxnOffsetCommit'])(
      'looks the coordinator up anew when %s says it has moved',
      async (api) => {
        const topic = await topicOf();
        const groupId = unique('group');
        const consumer = await member(topic, groupId);
        const disturbed = closing.add(await subject().disturbed());
        const producer = await producerFor(topic, disturbed.client);
        const refused = disturbed.faults.refuse(api, NOT_COORDINATOR);
        producer.begin();
        appendAll(producer, topic, ['a']);
        await producer.flush();
        await producer.sendOffsets([{ topic, partition: 0, offset: 1n }], consumer.groupMetadata());
        await producer.commit();
        expect(refused.fired).toBe(1);
        await expect.poll(() => readValues(subject().client, topic)).toEqual(['a']);
        expect(await groupOffset(groupId, topic)).toBe(1n);
      },
    );

    it('commits offsets with the outputs, or neither', async () => {
      const topic = await topicOf();
      const groupId = unique('group');
      const consumer = await member(topic, groupId);
      const producer = await producerFor(topic, subject().client);
      producer.begin();
      appendAll(producer, topic, ['dropped']);
      await producer.flush();
      await producer.sendOffsets([{ topic, partition: 0, offset: 5n }], consumer.groupMetadata());
      await producer.abort();
      await expect.poll(() => consumer.committed([{ topic, partition: 0 }]).catch(() => 'pending')).toEqual([]);
      producer.begin();
      appendAll(producer, topic, ['kept']);
      await producer.flush();
      await producer.sendOffsets([{ topic, partition: 0, offset: 7n, metadata: 'stream time 42' }], consumer.groupMetadata());
      await producer.commit();
      await expect
        .poll(() => consumer.committed([{ topic, partition: 0 }]).catch(() => 'pending'))
        .toEqual([expect.objectContaining({ topic, partition: 0, offset: 7n, metadata: 'stream time 42' })]);
      expect(await readValues(subject().client, topic)).toEqual(['kept']);
    });

    it.each([
      ['loseAnswer', ['a', 'b'], 1n],
      ['loseRequest', ['b'], undefined],
    ] as const)(
      'every EndTxn meets %s: the outcome is unknown, and init and the committed offset tell it',
      async (fault, values, offset) => {
        const topic = await topicOf();
        const groupId = unique('group');
        const consumer = await member(topic, groupId);
        const disturbed = closing.add(await subject().disturbed());
        const producer = await producerFor(topic, disturbed.client, { transactionTimeoutMs: 1_500, requestTimeoutMs: 500 });
        producer.begin();
        appendAll(producer, topic, ['a']);
        await producer.flush();
        await producer.sendOffsets([{ topic, partition: 0, offset: 1n }], consumer.groupMetadata());
        const lost = disturbed.faults[fault]('EndTxn', Number.POSITIVE_INFINITY);
        await expect(producer.commit()).rejects.toThrow(OutcomeUnknownError);
        expect(lost.fired).toBeGreaterThan(0);
        disturbed.faults.heal();
        // No way but init leads on.
        expect(() => producer.begin()).toThrow(TidemarkError);
        await expect(producer.commit()).rejects.toThrow(TidemarkError);
        await producer.init();
        expect((await consumer.committed([{ topic, partition: 0 }]))[0]?.offset).toBe(offset);
        await commitValues(producer, topic, ['b']);
        await expect.poll(() => readValues(subject().client, topic)).toEqual(values);
      },
    );

    it.each(['loseAnswer', 'loseRequest'] as const)(
      'one EndTxn meets %s: nothing is lost or doubled, and the next transaction is none of its business',
      async (fault) => {
        const topic = await topicOf();
        const groupId = unique('group');
        const consumer = await member(topic, groupId);
        const disturbed = closing.add(await subject().disturbed());
        const producer = await producerFor(topic, disturbed.client);
        producer.begin();
        appendAll(producer, topic, ['a']);
        await producer.flush();
        await producer.sendOffsets([{ topic, partition: 0, offset: 1n }], consumer.groupMetadata());
        const lost = disturbed.faults[fault]('EndTxn');
        const outcome = await producer.commit().then(
          () => undefined,
          (error: unknown) => error,
        );
        expect(lost.fired).toBe(1);
        // Repeating EndTxn under the same epoch may settle it; else the type of the error says that it is not settled.
        expect([undefined, 'OUTCOME_UNKNOWN']).toContain((outcome as TidemarkError | undefined)?.code);
        if (outcome !== undefined) await producer.init();
        const committed = (await consumer.committed([{ topic, partition: 0 }]))[0]?.offset === 1n;
        expect(committed || outcome !== undefined).toBe(true);
        await commitValues(producer, topic, ['b']);
        await expect.poll(() => readValues(subject().client, topic)).toEqual(committed ? ['a', 'b'] : ['b']);
      },
    );

    it.each(transactionVersion === 1 ? ['AddOffsetsToTxn', 'TxnOffsetCommit'] : ['TxnOffsetCommit'])(
      'lets no commit follow when the answer of %s is lost',
      async (api) => {
        const topic = await topicOf();
        const groupId = unique('group');
        const consumer = await member(topic, groupId);
        const disturbed = closing.add(await subject().disturbed());
        const producer = await producerFor(topic, disturbed.client);
        producer.begin();
        appendAll(producer, topic, ['a']);
        await producer.flush();
        const lost = disturbed.faults.loseAnswer(api);
        // Repeating the same request on a new connection is right too: then both outputs and offset are committed.
        const sent = await producer.sendOffsets([{ topic, partition: 0, offset: 1n }], consumer.groupMetadata()).then(
          () => true,
          (error: unknown) => {
            expect(error).toBeInstanceOf(RetriableError);
            return false;
          },
        );
        expect(lost.fired).toBe(1);
        if (!sent) {
          await expect(producer.commit()).rejects.toThrow(TidemarkError);
          await producer.init();
        } else await producer.commit();
        await expect.poll(() => readValues(subject().client, topic)).toEqual(sent ? ['a'] : []);
        expect(await groupOffset(groupId, topic)).toBe(sent ? 1n : undefined);
      },
    );

    it.each(['loseAnswer', 'loseRequest'] as const)('a Produce that meets %s ends in all of the transaction or in none', async (fault) => {
      const topic = await topicOf();
      const disturbed = closing.add(await subject().disturbed());
      const producer = await producerFor(topic, disturbed.client);
      const values = Array.from({ length: 50 }, (_, i) => `${i}`);
      const lost = disturbed.faults[fault]('Produce');
      producer.begin();
      appendAll(producer, topic, values);
      const flushed = await producer.flush().then(
        () => true,
        () => false,
      );
      expect(lost.fired).toBe(1);
      if (flushed) await producer.commit();
      else await producer.abort();
      await commitValues(producer, topic, ['end']);
      await expect.poll(() => readValues(subject().client, topic)).toEqual(flushed ? [...values, 'end'] : ['end']);
    });

    it('init fences the predecessor and aborts its transaction at once', async () => {
      const topic = await topicOf();
      const transactionalId = unique('txn');
      const predecessor = await producerFor(topic, subject().client, { transactionalId });
      predecessor.begin();
      appendAll(predecessor, topic, ['zombie']);
      await predecessor.flush();
      const started = performance.now();
      const successor = await producerFor(topic, subject().client, { transactionalId });
      await commitValues(successor, topic, ['successor']);
      await expect.poll(() => readValues(subject().client, topic)).toEqual(['successor']);
      // Far below the transaction timeout of 10 s, after which the broker aborts by itself.
      expect(performance.now() - started).toBeLessThan(9_000);
      await expect(predecessor.commit()).rejects.toThrow(FencedError);
    });

    it('a fenced producer may not flush, send offsets or abort either', async () => {
      const topic = await topicOf();
      const groupId = unique('group');
      const consumer = await member(topic, groupId);
      const attempts: ((producer: TransactionalProducer, group: GroupMetadata) => Promise<void>)[] = [
        (producer) => producer.flush(),
        (producer, group) => producer.sendOffsets([{ topic, partition: 0, offset: 1n }], group),
      ];
      for (const attempt of attempts) {
        const transactionalId = unique('txn');
        const predecessor = await producerFor(topic, subject().client, { transactionalId });
        predecessor.begin();
        appendAll(predecessor, topic, ['zombie']);
        await predecessor.flush();
        await producerFor(topic, subject().client, { transactionalId });
        appendAll(predecessor, topic, ['zombie again']);
        await expect(predecessor.flush().then(() => attempt(predecessor, consumer.groupMetadata()))).rejects.toThrow(FencedError);
      }
      expect(await readValues(subject().client, topic)).toEqual([]);
    });

    it.each(['EndTxn', ...adding])('takes PRODUCER_FENCED of %s for what it is', async (api) => {
      const topic = await topicOf();
      const groupId = unique('group');
      const consumer = await member(topic, groupId);
      const disturbed = closing.add(await subject().disturbed());
      const producer = await producerFor(topic, disturbed.client);
      disturbed.faults.refuse(api, PRODUCER_FENCED);
      const run = async (): Promise<void> => {
        producer.begin();
        appendAll(producer, topic, ['a']);
        await producer.flush();
        await producer.sendOffsets([{ topic, partition: 0, offset: 1n }], consumer.groupMetadata());
        await producer.commit();
      };
      await expect(run()).rejects.toThrow(FencedError);
    });

    it('refuses the offsets of a member whose generation is over', async () => {
      const topic = await topicOf();
      const groupId = unique('group');
      const first = await member(topic, groupId);
      const stale = first.groupMetadata();
      const second = closing.add(
        subject().client.groupConsumer({
          groupId,
          subscription: { topics: [topic] },
          assignor: dealingAssignor(),
          heartbeatIntervalMs: 200,
        }),
      );
      await Promise.all([nextEvent(second, 'assigned'), nextEvent(first, 'revoked').then(() => nextEvent(first, 'assigned'))]);
      const zombie = await producerFor(topic, subject().client);
      zombie.begin();
      appendAll(zombie, topic, ['zombie']);
      await zombie.flush();
      await expect(zombie.sendOffsets([{ topic, partition: 0, offset: 9n }], stale)).rejects.toThrow(StaleGenerationError);
      await expect(zombie.commit()).rejects.toThrow(TidemarkError);
      await zombie.abort();
      expect(await groupOffset(groupId, topic)).toBeUndefined();
      expect(await readValues(subject().client, topic)).toEqual([]);
    });

    it('lets nobody read an offset while a transaction that commits it is open', async () => {
      const topic = await topicOf();
      const groupId = unique('group');
      const consumer = await member(topic, groupId);
      const producer = await producerFor(topic, subject().client);
      producer.begin();
      appendAll(producer, topic, ['a']);
      await producer.flush();
      await producer.sendOffsets([{ topic, partition: 0, offset: 1n }], consumer.groupMetadata());
      await expect(consumer.committed([{ topic, partition: 0 }])).rejects.toThrow(RetriableError);
      await producer.commit();
      await expect.poll(() => consumer.committed([{ topic, partition: 0 }]).catch(() => 'pending')).toMatchObject([{ offset: 1n }]);
    });

    it('an abort whose answer is lost leaves nothing behind after init', async () => {
      const topic = await topicOf();
      const disturbed = closing.add(await subject().disturbed());
      const producer = await producerFor(topic, disturbed.client);
      producer.begin();
      appendAll(producer, topic, ['dropped']);
      await producer.flush();
      disturbed.faults.loseAnswer('EndTxn');
      await producer.abort().catch(() => undefined);
      await producer.init();
      await commitValues(producer, topic, ['b']);
      await expect.poll(() => readValues(subject().client, topic)).toEqual(['b']);
      await expect.poll(() => bounds(subject().client, topic).then((log) => log.highWatermark - log.lastStable)).toBe(0n);
    });
  });
}
