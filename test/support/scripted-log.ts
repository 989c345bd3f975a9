import { setTimeout as sleep } from 'node:timers/promises';
import type { WireReader } from '../../src/kafka/kafkajs/wire/reader.ts';
import type { WireWriter } from '../../src/kafka/kafkajs/wire/writer.ts';
import { batchBytes } from './record-batches.ts';
import type { ScriptedBroker } from './scripted-broker.ts';

export interface FetchSeen {
  readonly maxWaitMs: number;
  readonly maxBytes: number;
  readonly partitions: readonly FetchedFrom[];
}

export interface FetchedFrom {
  readonly topic: string;
  readonly partition: number;
  readonly leaderEpoch: number;
  readonly offset: bigint;
  readonly maxBytes: number;
}

interface Answer {
  readonly errorCode?: number;
  readonly records?: Buffer;
}

/** The logs of a scripted broker's partitions: one record per batch, and fetches that wait for data as they do at a real one. */
export class ScriptedLog {
  readonly fetches: FetchSeen[] = [];
  /** Fetches that wait at this moment, and the most that ever did. */
  waiting = 0;
  mostWaiting = 0;
  /** Answers instead of the log where it gives something. */
  instead: ((from: FetchedFrom) => Answer | undefined) | undefined;
  readonly #batches = new Map<string, Buffer[]>();
  readonly #appended = new Set<() => void>();

  constructor(broker: ScriptedBroker) {
    broker.script('Fetch', (request, answer) => this.#fetch(request, answer));
    broker.script('ListOffsets', (request, answer) => this.#listOffsets(request, answer));
  }

  append(topic: string, partition: number, values: readonly string[]): void {
    const key = `${topic}/${partition}`;
    const batches = this.#batches.get(key) ?? [];
    this.#batches.set(key, batches);
    for (const value of values) batches.push(batchBytes({ baseOffset: BigInt(batches.length), records: [{ value }] }));
    for (const wake of this.#appended) wake();
  }

  async #fetch(request: WireReader, answer: WireWriter): Promise<void> {
    const fetch = readFetch(request);
    this.fetches.push(fetch);
    const until = performance.now() + fetch.maxWaitMs;
    this.waiting++;
    this.mostWaiting = Math.max(this.mostWaiting, this.waiting);
    let found = this.#read(fetch);
    while (found.every((each) => each.errorCode === 0 && each.records.length === 0) && performance.now() < until) {
      const controller = new AbortController();
      const wake = (): void => controller.abort();
      this.#appended.add(wake);
      await sleep(Math.max(1, until - performance.now()), undefined, { signal: controller.signal }).catch(() => undefined);
      this.#appended.delete(wake);
      found = this.#read(fetch);
    }
    this.waiting--;
    answer.int32(0).int16(0).int32(0);
    answer.array(found, (w, { topic, partition, errorCode, end, records }) => {
      w.string(topic).array([partition], (each) => {
        each.int32(partition).int16(errorCode).int64(end).int64(end).int64(0n).int32(-1);
        // A follower that would be nearer, which the client may pass over.
        each.int32(7).bytes(records);
      });
    });
  }

  #read(fetch: FetchSeen) {
    let room = fetch.maxBytes;
    return fetch.partitions.map((from) => {
      const { topic, partition, offset } = from;
      const batches = this.#batches.get(`${topic}/${partition}`) ?? [];
      const { errorCode = 0, records } = this.instead?.(from) ?? {};
      const all = records ?? Buffer.concat(errorCode === 0 ? batches.slice(Number(offset)) : []);
      // The first batch of an answer always comes whole.
      const whole = room === fetch.maxBytes ? (batches[Number(offset)]?.length ?? 0) : 0;
      const bytes = records ?? all.subarray(0, Math.max(whole, Math.min(room, from.maxBytes)));
      room = Math.max(0, room - bytes.length);
      return { topic, partition, errorCode, end: BigInt(batches.length), records: bytes };
    });
  }

  #listOffsets(request: WireReader, answer: WireWriter): void {
    request.int32();
    request.int8();
    const topics = request.array((r) => ({
      topic: r.string(),
      partitions: r.array((each) => ({ partition: each.int32(), epoch: each.int32(), timestamp: each.int64() })),
    }));
    answer.int32(0).array(topics, (w, { topic, partitions }) => {
      w.string(topic).array(partitions, (each, { partition, timestamp }) => {
        const end = BigInt(this.#batches.get(`${topic}/${partition}`)?.length ?? 0);
        each
          .int32(partition)
          .int16(0)
          .int64(-1n)
          .int64(timestamp === -2n ? 0n : end)
          .int32(0);
      });
    });
  }
}

function readFetch(request: WireReader): FetchSeen {
  request.int32();
  const maxWaitMs = request.int32();
  request.int32();
  const maxBytes = request.int32();
  request.int8();
  request.int32();
  request.int32();
  const partitions = request
    .array((r) => {
      const topic = r.string();
      return r.array((each) => {
        const partition = each.int32();
        const leaderEpoch = each.int32();
        const offset = each.int64();
        each.int64();
        return { topic, partition, leaderEpoch, offset, maxBytes: each.int32() };
      });
    })
    .flat();
  return { maxWaitMs, maxBytes, partitions };
}
