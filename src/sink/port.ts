/**
 * The contract of a sink: where data leaves Kafka. A sink is never run inside a Kafka transaction; it reads a committed topic, and
 * whether an effect happens once is decided on its side of the boundary.
 */
import type { FailPoints } from '../model/fail-point.ts';
import type { RecordContext } from '../model/record.ts';
import type { TopicPartition } from '../model/topic-partition.ts';

/**
 * - `at-most-once`: the Kafka offset is committed before the effect.
 * - `at-least-once`: the Kafka offset is committed after the effect; no dedup.
 * - `exactly-once`: the position and the idempotency keys are written in the transaction of the effect.
 * - `key-only`: idempotency keys only (as good as their retention). `fence-only`: position only (redelivery by Kafka is harmless, a
 *   producer that sends twice is not).
 */
export type SinkMode = 'at-most-once' | 'at-least-once' | 'exactly-once' | 'key-only' | 'fence-only';

/** One record for a sink. `idempotencyKey` is from the header, the user's function, or the record's coordinates. */
export interface SinkRecord<K, V> {
  readonly key: K;
  readonly value: V;
  readonly context: RecordContext;
  readonly idempotencyKey: string;
  /** The bytes of the source record, so that a dead letter can keep what came in. */
  readonly source?: SourceBytes;
}

export interface SourceBytes {
  readonly key: Buffer | null;
  readonly value: Buffer | null;
}

/** A record that never became a sink record: it could not be deserialised, or a step of the stage threw. */
export interface RefusedRecord {
  readonly context: RecordContext;
  readonly source: SourceBytes;
  readonly idempotencyKey: string;
  readonly reason: string;
}

/** A run of one partition, in offset order. One source record may have given none or several of `records`. */
export interface SinkBatch<K, V> extends TopicPartition {
  /** The position that the sink is expected to be at. */
  readonly from: bigint;
  /** The position after this batch. */
  readonly nextOffset: bigint;
  readonly records: readonly SinkRecord<K, V>[];
  /** To be kept as dead letters in the transaction of this batch. Only given to a sink with `keepsDeadLetters`. */
  readonly refused?: readonly RefusedRecord[];
}

export interface SinkOutcome {
  readonly applied: number;
  /** Skipped, since their idempotency key was there already (or came twice in the batch). */
  readonly duplicates: number;
  /** Refused for what they contain, and kept as dead letters in the same transaction. */
  readonly deadLettered: number;
}

export interface SinkContext {
  readonly applicationId: string;
  /** The stage's name in the topology; unique in the application. */
  readonly stage: string;
  readonly failPoints?: FailPoints;
  readonly log: SinkLog;
}

export interface SinkLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** An open sink, used by one worker. Partitions are written one batch at a time; different partitions may be written concurrently. */
export interface SinkWriter<K, V> {
  /** How many batches (of different partitions) may be written at the same time. Default 1. */
  readonly concurrency?: number;
  /**
   * Takes over a partition: earlier owners are fenced from here on. `start` is where the Kafka side would begin; the answer is where to
   * begin, which for a sink that keeps positions is its own truth.
   */
  claim(partition: TopicPartition, start: bigint): Promise<bigint>;
  /**
   * Applies a batch as one unit. Throws SinkRetriableError (nothing was applied, or it is unknown and `claim` will tell), SinkFencedError
   * (claim again and re-read), SinkFatalError.
   */
  write(batch: SinkBatch<K, V>): Promise<SinkOutcome>;
  /** Ends the connections. Never throws; bounded by `timeoutMs` (default 5 s). */
  close(timeoutMs?: number): Promise<void>;
}

/** A sink as a topology holds it: immutable until `open`. */
export interface Sink<K, V> {
  /** `postgres`, `http`... */
  readonly kind: string;
  readonly mode: SinkMode;
  /** What `describe` writes on the edge: the guarantee that the effect really has, in one line. */
  readonly guarantee: string;
  /** Overrides header and coordinates as the source of the idempotency key. */
  readonly idempotencyKey?: (value: V, key: K, context: RecordContext) => string | null | undefined;
  /** The most records in one `write`, except where a single source record gives more. */
  readonly maxBatchRecords: number;
  /** Whether `SinkBatch.refused` is kept. Default false. */
  readonly keepsDeadLetters?: boolean;
  open(context: SinkContext): Promise<SinkWriter<K, V>>;
}
