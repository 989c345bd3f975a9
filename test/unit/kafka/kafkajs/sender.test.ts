import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { Sender, type SenderOptions, type SendingSession } from '../../../../src/kafka/kafkajs/sender.ts';
import { ErrorCode } from '../../../../src/kafka/kafkajs/wire/error-code.ts';
import { FatalError, FencedError, RecordTooLargeError, RetriableError } from '../../../../src/model/errors.ts';
import { NO_HEADERS } from '../../../../src/model/headers.ts';
import { ProduceBrokers, type Fate, type ReceivedRequest } from './produce-brokers.ts';

/** For what comes by itself, on a busy machine too. */
const SOON = { timeout: 10_000, interval: 20 };
const OPTIONS: SenderOptions = {
  compression: 'none',
  batchBytes: 200,
  maxBufferedBytes: 100_000,
  deliveryTimeoutMs: 5_000,
  requestTimeoutMs: 1_000,
};
const senders: Sender[] = [];

afterEach(() => {
  for (const sender of senders.splice(0)) sender.fail(new FatalError('the test is over'));
});

function session(epoch = 0, more: Partial<SendingSession> = {}): SendingSession {
  return {
    identity: { producerId: 7n, producerEpoch: epoch },
    transactionalId: null,
    oldestProduceVersion: 8,
    newestProduceVersion: 11,
    ...more,
  };
}

function senderTo(brokers: ProduceBrokers, options: Partial<SenderOptions> = {}): Sender {
  const sender = new Sender(brokers, { ...OPTIONS, ...options });
  senders.push(sender);
  const partitions = new Map<string, number>();
  for (const key of brokers.logs.keys()) {
    const topic = key.slice(0, key.lastIndexOf('/'));
    partitions.set(topic, (partitions.get(topic) ?? 0) + 1);
  }
  for (const [topic, count] of partitions) sender.setTopic(topic, count, 10_000);
  sender.start(session());
  return sender;
}

function append(sender: Sender, partition: number, ...values: string[]): void {
  for (const value of values) sender.append('t', partition, null, value, 1, NO_HEADERS);
}

function numbered(count: number, from = 0): string[] {
  return Array.from({ length: count }, (_, i) => `value-${from + i}`);
}

/** The first request meets this fate, all others none. */
function once(fate: Fate): (request: ReceivedRequest) => Fate {
  let met = false;
  return () => {
    if (met) return undefined;
    met = true;
    return fate;
  };
}

/** A promise that the test resolves. */
function gate(): { readonly wait: Promise<void>; open(): void } {
  let open = (): void => {};
  const wait = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { wait, open: () => open() };
}

describe('a leader that moves', () => {
  it('has one of two partitions resent, with the same bytes: nothing is missing, nothing doubled, the order kept', async () => {
    const brokers = new ProduceBrokers({ t: [1, 1] });
    const sender = senderTo(brokers);
    brokers.fate = once(new Map([['t/0', ErrorCode.NOT_LEADER_OR_FOLLOWER]]));
    brokers.onRefresh = () => {
      brokers.log('t', 0).leader = 2;
    };
    append(sender, 0, ...numbered(60));
    append(sender, 1, ...numbered(60, 100));
    await sender.flush();
    expect(brokers.log('t', 0).values).toEqual(numbered(60));
    expect(brokers.log('t', 1).values).toEqual(numbered(60, 100));
    expect(brokers.refreshes).toBeGreaterThan(0);
    const ofMoved = brokers.requests.flatMap(({ nodeId, batches }) => batches.filter((b) => b.partition === 0).map((b) => ({ nodeId, b })));
    expect(ofMoved.map(({ nodeId }) => nodeId)).toEqual([1, ...ofMoved.slice(1).map(() => 2)]);
    expect(ofMoved[1]?.b.bytes.equals(ofMoved[0]!.b.bytes)).toBe(true);
    // The partition that did not move is not sent a second time.
    expect(brokers.log('t', 1).sequences).toHaveLength(
      brokers.requests.flatMap(({ batches }) => batches).filter((b) => b.partition === 1).length,
    );
  });

  it('is waited for while there is none', async () => {
    const brokers = new ProduceBrokers({ t: [1] });
    const sender = senderTo(brokers);
    brokers.log('t', 0).leader = undefined;
    let asked = 0;
    brokers.onRefresh = () => {
      if (++asked === 3) brokers.log('t', 0).leader = 1;
    };
    append(sender, 0, 'a');
    await sender.flush();
    expect(brokers.log('t', 0).values).toEqual(['a']);
  });
});

describe('a request that is lost', () => {
  it.each(['lose-answer', 'lose-request', 'mute'] as const)('%s: its batches are sent again and written once', async (fate) => {
    const brokers = new ProduceBrokers({ t: [1, 1] });
    const sender = senderTo(brokers);
    brokers.fate = once(fate);
    append(sender, 0, ...numbered(50));
    append(sender, 1, ...numbered(50));
    await sender.flush();
    expect(brokers.log('t', 0).values).toEqual(numbered(50));
    expect(brokers.log('t', 1).values).toEqual(numbered(50));
    const [first, second] = brokers.requests.filter(({ batches }) => batches[0]?.partition === 0);
    expect(second?.batches[0]?.bytes.equals(first!.batches[0]!.bytes)).toBe(true);
    expect(sender.bufferedBytes).toBe(0);
  });

  it('is given up after the delivery timeout, and the error says for what', async () => {
    const brokers = new ProduceBrokers({ t: [1] });
    const sender = senderTo(brokers, { deliveryTimeoutMs: 150 });
    brokers.fate = () => 'lose-request';
    append(sender, 0, 'a');
    await expect(sender.flush()).rejects.toThrow(/t\/0 was not acknowledged within deliveryTimeoutMs \(150 ms\): the connection broke/);
    expect(() => append(sender, 0, 'b')).toThrow(RetriableError);
    await expect(sender.ready()).rejects.toThrow(RetriableError);
  });
});

describe('requests', () => {
  it('are one at a time per broker, with one batch per partition, and several brokers at once', async () => {
    const brokers = new ProduceBrokers({ t: [1, 1, 2] });
    const sender = senderTo(brokers);
    const held = gate();
    brokers.fate = () => held.wait;
    for (let partition = 0; partition < 3; partition++) append(sender, partition, ...numbered(100));
    const flushed = sender.flush();
    await expect.poll(() => brokers.requests.length, SOON).toBe(2);
    held.open();
    await flushed;
    expect(brokers.mostInFlight).toBe(1);
    for (const { batches } of brokers.requests) {
      expect(new Set(batches.map(({ partition }) => partition)).size).toBe(batches.length);
    }
    for (let partition = 0; partition < 3; partition++) expect(brokers.log('t', partition).values).toEqual(numbered(100));
  });

  it('carry at most 5 MiB where no single batch is larger', async () => {
    const brokers = new ProduceBrokers({ t: [1, 1, 1, 1, 1, 1, 1, 1] });
    const sender = senderTo(brokers, { batchBytes: 1_000_000, maxBufferedBytes: 100_000_000 });
    sender.setTopic('t', 8, 1_100_000);
    for (let partition = 0; partition < 8; partition++) append(sender, partition, 'x'.repeat(900_000));
    await sender.flush();
    expect(brokers.requests.map(({ batches }) => batches.length)).toEqual([5, 3]);
  });

  it('leave when a batch is full, without a flush', async () => {
    const brokers = new ProduceBrokers({ t: [1] });
    const sender = senderTo(brokers);
    append(sender, 0, ...numbered(35));
    await expect.poll(() => brokers.log('t', 0).values.length, SOON).toBeGreaterThan(0);
    await expect.poll(() => [...brokers.inFlight.values()], SOON).toEqual([0]);
    expect(brokers.log('t', 0).values.length).toBeLessThan(35);
  });

  it('leave before a batch is full while no other is under way, so that a flush has little to wait for', async () => {
    const brokers = new ProduceBrokers({ t: [1, 1] });
    const sender = senderTo(brokers, { batchBytes: 1_000_000, maxBufferedBytes: 100_000_000 });
    sender.setTopic('t', 2, 1_100_000);
    const held = gate();
    brokers.fate = () => held.wait;
    append(sender, 0, 'x'.repeat(20_000));
    append(sender, 1, 'too small to be worth a request');
    await sender.ready();
    await expect.poll(() => brokers.requests.length, SOON).toBe(1);
    // The request is under way: what comes meanwhile is gathered.
    append(sender, 0, 'y'.repeat(20_000), 'z'.repeat(20_000));
    await sender.ready();
    const flushed = sender.flush();
    held.open();
    await flushed;
    expect(brokers.requests.map(({ batches }) => batches.map(({ partition, values }) => [partition, values.length]))).toEqual([
      [[0, 1]],
      [
        [1, 1],
        [0, 2],
      ],
    ]);
  });

  it('wait until their partitions are enlisted', async () => {
    const brokers = new ProduceBrokers({ t: [1, 1] });
    const sender = senderTo(brokers);
    const held = gate();
    const touched: number[] = [];
    sender.start(session(1, { touched: ({ partition }) => void touched.push(partition), enlisted: () => held.wait }));
    append(sender, 1, 'a', 'b');
    append(sender, 0, 'c');
    append(sender, 1, 'd');
    const flushed = sender.flush();
    await new Promise((resolve) => setImmediate(resolve));
    expect(touched).toEqual([1, 0]);
    expect(brokers.requests).toEqual([]);
    held.open();
    await flushed;
    sender.nextTransaction();
    append(sender, 1, 'e');
    expect(touched).toEqual([1, 0, 1]);
  });
});

describe('the sequence', () => {
  it('counts records without a hole, over batches and over what was dropped unsent', async () => {
    const brokers = new ProduceBrokers({ t: [1] });
    const sender = senderTo(brokers);
    append(sender, 0, ...numbered(40));
    await sender.flush();
    const held = gate();
    brokers.fate = once(held.wait);
    append(sender, 0, ...numbered(40, 40));
    const abandoned = sender.abandon(1_000);
    held.open();
    expect(await abandoned).toBe(true);
    sender.resume();
    append(sender, 0, 'last');
    await sender.flush();
    const { values } = brokers.log('t', 0);
    expect(values.slice(0, 40)).toEqual(numbered(40));
    expect(values.at(-1)).toBe('last');
    expect(sender.bufferedBytes).toBe(0);
  });

  it('begins at 0 under a new epoch, and what the old one still has under way is ignored', async () => {
    const brokers = new ProduceBrokers({ t: [1] });
    const sender = senderTo(brokers);
    append(sender, 0, 'a');
    await sender.flush();
    const held = gate();
    brokers.fate = once(held.wait);
    append(sender, 0, 'old');
    const flushed = sender.flush().catch((error: unknown) => error);
    await expect.poll(() => brokers.requests.length, SOON).toBe(2);
    sender.start(session(1));
    expect(await flushed).toBeInstanceOf(RetriableError);
    append(sender, 0, 'new');
    await sender.flush();
    held.open();
    await new Promise((resolve) => setImmediate(resolve));
    append(sender, 0, 'newer');
    await sender.flush();
    expect(brokers.log('t', 0).values).toEqual(['a', 'new', 'newer']);
    expect(brokers.log('t', 0).sequences).toEqual([0, 0, 1]);
  });
});

describe('abandon', () => {
  it('says false when a batch has no sure answer', async () => {
    const brokers = new ProduceBrokers({ t: [1] });
    const sender = senderTo(brokers);
    brokers.fate = () => 'lose-answer';
    append(sender, 0, 'a');
    const flushed = sender.flush().catch((error: unknown) => error);
    await expect.poll(() => brokers.requests.length, SOON).toBeGreaterThan(0);
    expect(await sender.abandon(1_000)).toBe(false);
    sender.reset();
    expect(await flushed).toBeInstanceOf(RetriableError);
  });

  it('says false when an answer does not come in time', async () => {
    const brokers = new ProduceBrokers({ t: [1] });
    const sender = senderTo(brokers);
    const held = gate();
    brokers.fate = () => held.wait;
    append(sender, 0, 'a');
    const flushed = sender.flush().catch((error: unknown) => error);
    await expect.poll(() => brokers.requests.length, SOON).toBe(1);
    expect(await sender.abandon(30)).toBe(false);
    sender.reset();
    held.open();
    expect(await flushed).toBeInstanceOf(RetriableError);
  });

  it('sends nothing any more', async () => {
    const brokers = new ProduceBrokers({ t: [1] });
    const sender = senderTo(brokers);
    const held = gate();
    brokers.fate = once(held.wait);
    append(sender, 0, ...numbered(100));
    await expect.poll(() => brokers.requests.length, SOON).toBe(1);
    const abandoned = sender.abandon(1_000);
    held.open();
    expect(await abandoned).toBe(true);
    await new Promise((resolve) => setImmediate(resolve));
    expect(brokers.requests).toHaveLength(1);
    expect(sender.bufferedBytes).toBe(0);
  });
});

describe('an error that no retry mends', () => {
  it.each([
    [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, RetriableError],
    [ErrorCode.UNKNOWN_PRODUCER_ID, RetriableError],
    [ErrorCode.TRANSACTION_ABORTABLE, RetriableError],
    [ErrorCode.INVALID_PRODUCER_EPOCH, FencedError],
    [ErrorCode.PRODUCER_FENCED, FencedError],
    [ErrorCode.MESSAGE_TOO_LARGE, RecordTooLargeError],
    [ErrorCode.TOPIC_AUTHORIZATION_FAILED, FatalError],
  ] as const)('%i is thrown by everything that waits and by every later call', async (code, type) => {
    const brokers = new ProduceBrokers({ t: [1, 2] });
    const sender = senderTo(brokers, { maxBufferedBytes: 10 });
    brokers.fate = () => new Map([['t/0', code]]);
    append(sender, 0, 'a');
    append(sender, 1, 'b');
    const waiting = [sender.flush(), sender.ready()];
    for (const result of await Promise.allSettled(waiting)) expect(result).toMatchObject({ reason: expect.any(type) });
    expect(() => append(sender, 1, 'c')).toThrow(type);
    await expect(sender.flush()).rejects.toThrow(type);
    await expect(sender.ready()).rejects.toThrow(type);
    expect(brokers.requests.filter(({ nodeId }) => nodeId === 1)).toHaveLength(1);
  });

  it('is no unhandled rejection when nobody waits', async () => {
    const unhandled: unknown[] = [];
    const listener = (error: unknown): void => void unhandled.push(error);
    process.on('unhandledRejection', listener);
    const brokers = new ProduceBrokers({ t: [1] });
    const sender = senderTo(brokers);
    brokers.fate = () => new Map([['t/0', ErrorCode.TOPIC_AUTHORIZATION_FAILED]]);
    append(sender, 0, ...numbered(30));
    await expect.poll(() => sender.error, SOON).toBeInstanceOf(FatalError);
    await new Promise((resolve) => setTimeout(resolve, 20));
    process.off('unhandledRejection', listener);
    expect(unhandled).toEqual([]);
  });

  it('may come from enlisting', async () => {
    const brokers = new ProduceBrokers({ t: [1] });
    const sender = senderTo(brokers);
    sender.start(session(1, { enlisted: () => Promise.reject(new FencedError('another took over')) }));
    append(sender, 0, 'a');
    await expect(sender.flush()).rejects.toThrow(FencedError);
    expect(brokers.requests).toEqual([]);
  });
});

describe('ready', () => {
  it('waits while the buffers are full and goes on when there is room', async () => {
    const brokers = new ProduceBrokers({ t: [1] });
    const sender = senderTo(brokers, { maxBufferedBytes: 1_000 });
    const held = gate();
    brokers.fate = once(held.wait);
    append(sender, 0, ...numbered(200));
    expect(sender.bufferedBytes).toBeGreaterThan(1_000);
    let ready = false;
    const waiting = (async () => {
      await sender.ready();
      ready = true;
    })();
    await expect.poll(() => brokers.requests.length, SOON).toBe(1);
    expect(ready).toBe(false);
    held.open();
    await waiting;
    expect(sender.bufferedBytes).toBeLessThan(1_000);
  });

  it('does not wait for ever for batches that are only half full', async () => {
    const brokers = new ProduceBrokers({ t: Array.from({ length: 20 }, () => 1) });
    const sender = senderTo(brokers, { batchBytes: 100_000, maxBufferedBytes: 1_000 });
    for (let partition = 0; partition < 20; partition++) append(sender, partition, 'a');
    await sender.ready();
    expect(sender.bufferedBytes).toBeLessThan(1_000);
  });
});

describe('records', () => {
  it('must fit into the largest batch of their topic, and a refused one leaves no trace', async () => {
    const brokers = new ProduceBrokers({ t: [1] });
    const sender = senderTo(brokers);
    append(sender, 0, 'a');
    expect(() => append(sender, 0, 'x'.repeat(10_000))).toThrow(RecordTooLargeError);
    append(sender, 0, 'b');
    await sender.flush();
    expect(brokers.log('t', 0).values).toEqual(['a', 'b']);
  });

  it('are written once and in order whatever befalls their requests', async () => {
    const fates = fc.infiniteStream(
      fc.oneof(
        { weight: 3, arbitrary: fc.constant<Fate>(undefined) },
        { weight: 1, arbitrary: fc.constantFrom<Fate>('lose-answer', 'lose-request', 'mute') },
        { weight: 1, arbitrary: fc.constantFrom(0, 1, 2).map((p): Fate => new Map([[`t/${p}`, ErrorCode.NOT_LEADER_OR_FOLLOWER]])) },
        { weight: 1, arbitrary: fc.constantFrom(0, 1, 2).map((p): Fate => new Map([[`t/${p}`, ErrorCode.NOT_ENOUGH_REPLICAS]])) },
      ),
    );
    const partitions = fc.array(fc.nat(2), { minLength: 1, maxLength: 120 });
    await fc.assert(
      fc.asyncProperty(fates, partitions, async (stream, order) => {
        const brokers = new ProduceBrokers({ t: [1, 2, 1] });
        const sender = senderTo(brokers);
        let faults = 0;
        brokers.fate = () => {
          const fate: Fate = stream.next().value;
          return fate !== undefined && ++faults > 6 ? undefined : fate;
        };
        const expected: string[][] = [[], [], []];
        for (const [i, partition] of order.entries()) {
          append(sender, partition, `v${i}`);
          expected[partition]?.push(`v${i}`);
          if (i % 17 === 0) await sender.ready();
        }
        await sender.flush();
        expect([0, 1, 2].map((partition) => brokers.log('t', partition).values)).toEqual(expected);
      }),
      { numRuns: 30 },
    );
  });
});
