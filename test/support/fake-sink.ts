import { SinkFencedError } from '../../src/model/errors.ts';
import { type TopicPartition, topicPartitionKey } from '../../src/model/topic-partition.ts';
import type { RefusedRecord, Sink, SinkBatch, SinkMode, SinkOutcome, SinkRecord, SinkWriter } from '../../src/sink/port.ts';

export type SinkCall = 'open' | 'claim' | 'write';

/** A target in memory that keeps positions as the Postgres sink does, and fails where it is told to. */
export class FakeTarget {
  readonly journal: string[] = [];
  readonly applied: SinkRecord<unknown, unknown>[] = [];
  readonly refused: RefusedRecord[] = [];
  readonly fences = new Map<string, { position: bigint; epoch: number }>();
  /** The most writes that ran at the same time. */
  mostAtOnce = 0;
  closed = false;
  /** While it is set, writes wait for it. */
  gate: Promise<void> | undefined;
  readonly #failures = new Map<SinkCall, { readonly error: Error; readonly afterEffect: boolean }[]>();
  #running = 0;

  /** The next call of that kind throws, before or after it has taken effect. May be told several times. */
  fail(call: SinkCall, error: Error, { afterEffect = false, times = 1 } = {}): void {
    const list = this.#failures.get(call) ?? [];
    for (let i = 0; i < times; i++) list.push({ error, afterEffect });
    this.#failures.set(call, list);
  }

  perform<T>(call: SinkCall, note: string, effect: () => T): T {
    const failure = this.#failures.get(call)?.shift();
    this.journal.push(`${call}${note}${failure === undefined ? '' : ' !'}`);
    if (failure !== undefined && !failure.afterEffect) throw failure.error;
    const result = effect();
    if (failure !== undefined) throw failure.error;
    return result;
  }

  async waited<T>(work: () => T): Promise<T> {
    this.#running++;
    this.mostAtOnce = Math.max(this.mostAtOnce, this.#running);
    try {
      await this.gate;
      return work();
    } finally {
      this.#running--;
    }
  }

  /** Somebody else takes the partition, and may have applied further. */
  takeAway(place: TopicPartition, position?: bigint): void {
    const fence = this.fences.get(topicPartitionKey(place.topic, place.partition));
    if (fence === undefined) throw new Error('nothing to take away');
    fence.epoch++;
    if (position !== undefined) fence.position = position;
  }

  get values(): unknown[] {
    return this.applied.map((record) => record.value);
  }

  get keys(): string[] {
    return this.applied.map((record) => record.idempotencyKey);
  }
}

export interface FakeSinkOptions {
  readonly mode?: SinkMode;
  readonly maxBatchRecords?: number;
  readonly concurrency?: number;
  readonly keepsDeadLetters?: boolean;
  readonly idempotencyKey?: Sink<unknown, unknown>['idempotencyKey'];
}

/** Typed so that it goes onto any stream. */
export function fakeSink<K, V>(target: FakeTarget, options: FakeSinkOptions = {}): Sink<K, V> {
  const { mode = 'exactly-once', maxBatchRecords = 5, concurrency = 2, keepsDeadLetters = true, idempotencyKey } = options;
  return {
    kind: 'fake',
    mode,
    guarantee: mode,
    maxBatchRecords,
    keepsDeadLetters,
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
    open: async () => target.perform('open', '', () => new FakeWriter(target, mode, concurrency) as SinkWriter<K, V>),
  };
}

class FakeWriter implements SinkWriter<unknown, unknown> {
  readonly concurrency: number;
  readonly #target: FakeTarget;
  readonly #fenced: boolean;
  readonly #epochs = new Map<string, number>();

  constructor(target: FakeTarget, mode: SinkMode, concurrency: number) {
    this.#target = target;
    this.concurrency = concurrency;
    this.#fenced = mode === 'exactly-once' || mode === 'fence-only';
  }

  async claim({ topic, partition }: TopicPartition, start: bigint): Promise<bigint> {
    return this.#target.perform('claim', ` ${topic}-${partition}@${start}`, () => {
      if (!this.#fenced) return start;
      const key = topicPartitionKey(topic, partition);
      const fence = this.#target.fences.get(key) ?? { position: start, epoch: 0 };
      fence.epoch++;
      this.#target.fences.set(key, fence);
      this.#epochs.set(key, fence.epoch);
      return fence.position;
    });
  }

  async write(batch: SinkBatch<unknown, unknown>): Promise<SinkOutcome> {
    const { topic, partition, from, nextOffset, records, refused = [] } = batch;
    return await this.#target.waited(() =>
      this.#target.perform('write', ` ${topic}-${partition}@${from}..${nextOffset} ${records.length}`, () => {
        if (this.#fenced) {
          const key = topicPartitionKey(topic, partition);
          const fence = this.#target.fences.get(key);
          if (fence === undefined || fence.position !== from || fence.epoch !== this.#epochs.get(key)) throw new SinkFencedError('fenced');
          fence.position = nextOffset;
        }
        this.#target.applied.push(...records);
        this.#target.refused.push(...refused);
        return { applied: records.length, duplicates: 0, deadLettered: refused.length };
      }),
    );
  }

  async close(): Promise<void> {
    this.#target.closed = true;
  }
}
