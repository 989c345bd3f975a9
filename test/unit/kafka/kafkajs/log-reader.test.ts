import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { connectionConfig } from '../../../../src/kafka/kafkajs/config.ts';
import { KafkaLogReader } from '../../../../src/kafka/kafkajs/log-reader.ts';
import type { FetchOptions, LogReader } from '../../../../src/kafka/port.ts';
import { FatalError } from '../../../../src/model/errors.ts';
import { batchBytes, drain, texts } from '../../../support/record-batches.ts';
import { ScriptedBroker } from '../../../support/scripted-broker.ts';
import { ScriptedLog } from '../../../support/scripted-log.ts';

const OFFSET_OUT_OF_RANGE = 1;
const UNKNOWN_TOPIC_OR_PARTITION = 3;
const NOT_LEADER_OR_FOLLOWER = 6;
const FENCED_LEADER_EPOCH = 74;
const UNKNOWN_LEADER_EPOCH = 75;

describe('KafkaLogReader', () => {
  let broker: ScriptedBroker;
  let log: ScriptedLog;
  let readers: LogReader[];

  beforeEach(async () => {
    broker = await ScriptedBroker.start();
    broker.topics.set('t', 4);
    log = new ScriptedLog(broker);
    readers = [];
  });
  afterEach(async () => {
    for (const reader of readers) await reader.close();
    await broker.close();
  });

  function readerOf(fetch: FetchOptions = {}): LogReader {
    const reader = new KafkaLogReader(connectionConfig({ brokers: [broker.address] }), { fetch: { maxWaitMs: 5_000, ...fetch } });
    readers.push(reader);
    return reader;
  }

  const at = (partition: number, offset = 0n) => ({ topic: 't', partition, offset });

  /** Values with their partitions, in the order in which they come. */
  async function values(reader: LogReader, count: number, deadlineMs = 3_000): Promise<string[]> {
    const found: string[] = [];
    const deadline = performance.now() + deadlineMs;
    while (found.length < count) {
      if (performance.now() > deadline) throw new Error(`only ${found.join(', ')} within ${deadlineMs} ms`);
      for (const batch of await reader.poll(100)) found.push(...texts(drain(batch.records)).map((value) => `${batch.partition}:${value}`));
    }
    return found;
  }

  it('names the leader epoch that it knows', async () => {
    log.append('t', 0, ['a']);
    const reader = readerOf();
    reader.startFrom([at(0)]);
    await values(reader, 1);
    expect(log.fetches[0]?.partitions[0]?.leaderEpoch).toBe(5);
  });

  it('reads many partitions with one long poll', async () => {
    const reader = readerOf();
    reader.startFrom([at(0), at(1), at(2), at(3)]);
    await expect.poll(() => log.waiting).toBe(1);
    expect(log.fetches.map(({ partitions }) => partitions.length)).toEqual([4]);
    expect(log.fetches[0]?.maxWaitMs).toBe(5_000);
    log.append('t', 2, ['a']);
    expect(await values(reader, 1)).toEqual(['2:a']);
    await expect.poll(() => log.fetches.length).toBe(2);
    expect(log.fetches[1]?.partitions).toHaveLength(4);
  });

  it('does not let a partition that is started wait for a long poll without it, and takes it along in the next one', async () => {
    log.append('t', 1, ['a']);
    const reader = readerOf({ maxWaitMs: 1_500 });
    reader.startFrom([at(0)]);
    await reader.poll(50);
    await expect.poll(() => log.waiting).toBe(1);
    const started = performance.now();
    reader.startFrom([at(1)]);
    expect(await values(reader, 1)).toEqual(['1:a']);
    expect(performance.now() - started).toBeLessThan(1_000);
    await expect
      .poll(() => log.fetches.filter(({ maxWaitMs }) => maxWaitMs === 1_500).at(-1)?.partitions.length, { timeout: 4_000 })
      .toBe(2);
    expect(log.mostWaiting).toBeLessThanOrEqual(2);
  });

  it('drops what was asked for under an older start', async () => {
    log.append('t', 0, ['a', 'b', 'c']);
    let held = true;
    log.instead = ({ offset }) => (offset === 0n && held ? { records: Buffer.alloc(0) } : undefined);
    const reader = readerOf();
    reader.startFrom([at(0)]);
    await expect.poll(() => log.waiting).toBe(1);
    reader.startFrom([at(0, 2n)]);
    held = false;
    log.append('t', 0, []);
    expect(await values(reader, 1)).toEqual(['0:c']);
    expect(await reader.poll(100)).toEqual([]);
  });

  it('drops what waits to be polled under an older start', async () => {
    log.append('t', 0, ['a', 'b', 'c']);
    const reader = readerOf();
    reader.startFrom([at(0)]);
    await expect.poll(() => log.fetches.length).toBe(2);
    reader.startFrom([at(0, 1n)]);
    expect(await values(reader, 2)).toEqual(['0:b', '0:c']);
  });

  it('fetches no more of a partition while enough of it waits, and goes on when it is taken', async () => {
    const values20 = Array.from({ length: 20 }, (_, i) => `${i} ${'x'.repeat(1_000)}`);
    log.append('t', 0, values20);
    const reader = readerOf({ maxPartitionBytes: 2_000 });
    reader.startFrom([at(0), at(1)]);
    // What is held now is the long poll for the other one, and nothing else follows.
    await expect.poll(() => log.fetches.at(-1)?.partitions.map(({ partition }) => partition)).toEqual([1]);
    const fetches = log.fetches.length;
    expect(fetches).toBeLessThan(5);
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect(log.fetches).toHaveLength(fetches);
    expect(await values(reader, 20)).toEqual(values20.map((value) => `0:${value}`));
  });

  it('fetches nothing while enough of all partitions together waits', async () => {
    for (const partition of [0, 1, 2]) {
      log.append(
        't',
        partition,
        Array.from({ length: 20 }, () => 'x'.repeat(1_000)),
      );
    }
    const reader = readerOf({ maxBytes: 1_000, maxBufferedBytes: 2_500 });
    reader.startFrom([at(0), at(1), at(2)]);
    await expect.poll(() => log.fetches.length).toBe(3);
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect(log.fetches).toHaveLength(3);
    expect(await values(reader, 60)).toHaveLength(60);
  });

  it('serves every partition, although an answer has room for one only', async () => {
    for (const partition of [0, 1, 2, 3])
      log.append(
        't',
        partition,
        Array.from({ length: 10 }, (_, i) => `${i}`),
      );
    const reader = readerOf({ maxBytes: 1, maxPartitionBytes: 1 });
    reader.startFrom([at(0), at(1), at(2), at(3)]);
    const first = await values(reader, 12);
    for (const partition of [0, 1, 2, 3]) expect(first.filter((value) => value.startsWith(`${partition}:`))).not.toHaveLength(0);
    const all = [...first, ...(await values(reader, 28))];
    for (const partition of [0, 1, 2, 3]) {
      expect(all.filter((value) => value.startsWith(`${partition}:`))).toEqual(Array.from({ length: 10 }, (_, i) => `${partition}:${i}`));
    }
  });

  it.each([
    ['NOT_LEADER_OR_FOLLOWER', NOT_LEADER_OR_FOLLOWER],
    ['UNKNOWN_SERVER_ERROR', -1],
    ['FENCED_LEADER_EPOCH', FENCED_LEADER_EPOCH],
    ['UNKNOWN_LEADER_EPOCH', UNKNOWN_LEADER_EPOCH],
    ['UNKNOWN_TOPIC_OR_PARTITION', UNKNOWN_TOPIC_OR_PARTITION],
  ])('looks up the leader anew after %s, and the other partitions go on', async (_, errorCode) => {
    log.append('t', 0, ['a']);
    log.append('t', 1, ['b']);
    let refusals = 3;
    log.instead = ({ partition }) => (partition === 0 && refusals-- > 0 ? { errorCode } : undefined);
    const reader = readerOf();
    reader.startFrom([at(0), at(1)]);
    expect((await values(reader, 2)).toSorted()).toEqual(['0:a', '1:b']);
    expect(broker.count('Metadata')).toBeGreaterThan(3);
  });

  it('takes OFFSET_OUT_OF_RANGE of a stale leader for what it is, when the leader says that the log goes further', async () => {
    log.append('t', 0, ['a', 'b']);
    let refusals = 2;
    log.instead = () => (refusals-- > 0 ? { errorCode: OFFSET_OUT_OF_RANGE } : undefined);
    const reader = readerOf();
    reader.startFrom([at(0, 1n)]);
    expect(await values(reader, 1)).toEqual(['0:b']);
    expect(refusals).toBeLessThan(0);
  });

  it('names the bounds of the log when the position lies outside, after delivering all that came before', async () => {
    log.append('t', 0, ['a']);
    log.append('t', 1, ['b']);
    log.instead = ({ offset }) => (offset > 1n ? { errorCode: OFFSET_OUT_OF_RANGE } : undefined);
    const reader = readerOf();
    reader.startFrom([at(0, 9n), at(1)]);
    expect(await values(reader, 1)).toEqual(['1:b']);
    await expect(values(reader, 1)).rejects.toThrow(/t\/0: the position 9 lies outside the log, which holds the offsets from 0 to below 1/);
    reader.startFrom([at(0)]);
    expect(await values(reader, 1)).toEqual(['0:a']);
  });

  it('fetches again what was damaged on its way, after delivering what was not', async () => {
    log.append('t', 0, ['a', 'b', 'c']);
    let damages = 2;
    log.instead = ({ offset }) => {
      if (damages-- <= 0) return undefined;
      const records = [0n, 1n, 2n]
        .filter((each) => each >= offset)
        .map((baseOffset) => batchBytes({ baseOffset, records: [{ value: 'abc'[Number(baseOffset)]! }] }));
      const bytes = Buffer.concat(records);
      bytes[bytes.length - 1] = 0xff;
      return { records: bytes };
    };
    const reader = readerOf();
    reader.startFrom([at(0)]);
    expect(await values(reader, 3)).toEqual(['0:a', '0:b', '0:c']);
    expect(damages).toBeLessThan(0);
  });

  it('ends when a batch is damaged each time', async () => {
    log.append('t', 0, ['a', 'b']);
    log.instead = () => {
      const bytes = batchBytes({ records: [{ value: 'a' }] });
      bytes[bytes.length - 1] = 0xff;
      return { records: bytes };
    };
    const reader = readerOf();
    reader.startFrom([at(0)]);
    await expect(values(reader, 1)).rejects.toThrow(/t\/0: the batch at offset 0 is damaged/);
    await expect(reader.poll(0)).rejects.toThrow(FatalError);
    expect(log.fetches).toHaveLength(4);
  });

  it('ends where it may not read', async () => {
    log.instead = () => ({ errorCode: 29 });
    const reader = readerOf();
    reader.startFrom([at(0)]);
    await expect(values(reader, 1)).rejects.toThrow(/t\/0.*TOPIC_AUTHORIZATION_FAILED/);
  });

  it('gives way to sockets and timers, however often it is polled without a wait', async () => {
    log.append('t', 0, ['a']);
    const reader = readerOf();
    reader.startFrom([at(0)]);
    const deadline = performance.now() + 3_000;
    let batches = await reader.poll(0);
    while (batches.length === 0 && performance.now() < deadline) batches = await reader.poll(0);
    expect(batches).toHaveLength(1);
  });

  it('ends a poll that waits when it is closed', async () => {
    const reader = readerOf();
    reader.startFrom([at(0)]);
    const poll = reader.poll(60_000);
    await expect.poll(() => log.waiting).toBe(1);
    await reader.close();
    expect(await poll).toEqual([]);
    await expect(reader.poll(0)).rejects.toThrow(FatalError);
  });

  it('goes on when the broker was away', async () => {
    log.append('t', 0, ['a']);
    broker.script('Fetch', (request, answer) => {
      void [request, answer];
      throw new Error('the connection breaks');
    });
    const reader = readerOf();
    reader.startFrom([at(0)]);
    await reader.poll(100);
    await expect.poll(() => broker.count('Fetch')).toBeGreaterThan(2);
    log = new ScriptedLog(broker);
    log.append('t', 0, ['a']);
    expect(await values(reader, 1)).toEqual(['0:a']);
  });
});
