/**
 * The narrow contract between the engine and Kafka. Pull, not push; no callbacks. An adapter throws only the five errors of
 * `model/errors.ts` (RetriableError, FencedError, StaleGenerationError, OutcomeUnknownError, FatalError), and every wait has a deadline.
 */
import type { FailPoints } from '../model/fail-point.ts';
import type { Headers } from '../model/headers.ts';
import type { ConsumedRecord, Payload } from '../model/record.ts';
import type { PartitionOffset, TopicPartition } from '../model/topic-partition.ts';

export type Isolation = 'read-committed' | 'read-uncommitted';

/** One Kafka cluster. Everything made by it shares nothing but its configuration, so one part's stall is not another's. */
export interface KafkaClient {
  groupConsumer(options: GroupConsumerOptions): GroupConsumer;
  transactionalProducer(options: TransactionalProducerOptions): TransactionalProducer;
  idempotentProducer(options?: ProducerOptions): IdempotentProducer;
  logReader(options?: LogReaderOptions): LogReader;
  admin(): Admin;
}

// ---------------------------------------------------------------------------------------------------------------- reading

export interface FetchOptions {
  /** How long a leader may hold a fetch for which it has no data. Default 500 ms, as `fetch.max.wait.ms`. */
  readonly maxWaitMs?: number;
  /** Upper bound of one fetch response (a single larger batch still comes whole). Default 10 MiB. */
  readonly maxBytes?: number;
  /**
   * Upper bound per partition in one response (a single larger batch still comes whole). Default 256 KiB: larger answers live
   * long enough to be collected late, and memory grows (measured: from 210 to 390 MiB over 5 million records), while the fetch ahead hides the way
   * to the broker. Raise it where that way is long.
   */
  readonly maxPartitionBytes?: number;
  /** No further fetch is sent while this many bytes wait to be polled. Default 32 MiB. */
  readonly maxBufferedBytes?: number;
  /** Default `read-committed`. */
  readonly isolation?: Isolation;
}

/** Records of a batch in offset order, decoded one at a time. Undefined at the end. */
export interface RecordCursor {
  next(): ConsumedRecord | undefined;
}

/** What one fetch brought for one partition, filtered by the isolation level. May hold no record and still move the position. */
export interface FetchedBatch extends TopicPartition {
  /** May be consumed once. Throws FatalError where the bytes are corrupt although their checksum is right. */
  readonly records: RecordCursor;
  /** The position after this batch. Passes over control batches, aborted records and the holes of compaction. */
  readonly nextOffset: bigint;
  /** In which the last record before `nextOffset` was written; undefined where that is not known. */
  readonly leaderEpoch?: number;
  readonly highWatermark: bigint;
  /** The first offset of the oldest open transaction, or the high watermark. */
  readonly lastStableOffset: bigint;
  /** Size on the wire, for bounding buffers. */
  readonly bytes: number;
}

// ------------------------------------------------------------------------------------------------------------------ group

/** What a member tells the leader of its group, as the assignor sees it. */
export interface GroupMember {
  readonly memberId: string;
  readonly groupInstanceId: string | null;
  readonly topics: readonly string[];
  /** What the member owned in the generation before; the basis of a sticky assignment. */
  readonly owned: readonly TopicPartition[];
  readonly userData: Buffer;
}

/** Runs on the group's leader only. Pure: the same members and counts give the same assignment. */
export interface Assignor {
  /** The protocol name in the group; members without a common one are refused by the broker. */
  readonly name: string;
  /** Travels to the leader with each join, in `GroupMember.userData`. */
  userData(): Buffer;
  /** Every partition of every subscribed topic goes to one member at most, which subscribes to it. */
  assign(members: readonly GroupMember[], partitionCounts: ReadonlyMap<string, number>): ReadonlyMap<string, readonly TopicPartition[]>;
  /** What the leader tells this member beside its partitions, in the assignment's user data. Called after `assign`. Default: nothing. */
  noteFor?(memberId: string): Buffer;
  /** Runs on each member with the leader's note, before `assigned` is delivered. What it throws, `poll` throws. */
  onNote?(note: Buffer): void;
}

export interface GroupConsumerOptions {
  readonly groupId: string;
  /** Topics by name, and patterns which are matched against all topics of the cluster at each metadata refresh. */
  readonly subscription: { readonly topics: readonly string[]; readonly patterns?: readonly RegExp[] };
  readonly assignor: Assignor;
  /** Static membership (KIP-345). */
  readonly groupInstanceId?: string;
  /** Default 45 s, as `session.timeout.ms`. */
  readonly sessionTimeoutMs?: number;
  /** Default 3 s; at most a third of the session timeout. Heartbeats run on their own timer. */
  readonly heartbeatIntervalMs?: number;
  /** The longest time between two polls before this member leaves the group by itself, and the rebalance timeout. Default 300 s. */
  readonly maxPollIntervalMs?: number;
  /** How often topics and partition counts are looked at; a change leads to a rebalance. Default 60 s here (Kafka: 300 s). */
  readonly metadataMaxAgeMs?: number;
  /** Deadline of one request, answer included. Default 30 s. */
  readonly requestTimeoutMs?: number;
  readonly fetch?: FetchOptions;
}

export type ConsumerEvent =
  /**
   * A rebalance has ended. `partitions` is the whole assignment. Those not in `retained` are paused until `startFrom`.
   * `retained` were owned in the generation directly before, so nobody else can have owned them between: position, buffered
   * batches and state stay valid.
   */
  | {
      readonly type: 'assigned';
      readonly generation: number;
      readonly partitions: readonly TopicPartition[];
      readonly retained: readonly TopicPartition[];
    }
  /**
   * A rebalance begins. This member is still the owner of all of `partitions`: drain and commit. The NEXT call of
   * `poll` lets the rejoin go on. No batch is delivered between `revoked` and `assigned`.
   */
  | { readonly type: 'revoked'; readonly partitions: readonly TopicPartition[] }
  /** No longer the owner (session expired, fenced, poll interval exceeded): abort, and commit nothing. */
  | { readonly type: 'lost'; readonly partitions: readonly TopicPartition[]; readonly reason: string }
  | { readonly type: 'batch'; readonly batch: FetchedBatch }
  /** The position lies outside the log. The partition is paused; `startFrom` resumes it. Never reset silently. */
  | {
      readonly type: 'out-of-range';
      readonly topic: string;
      readonly partition: number;
      readonly position: bigint;
      readonly logStart: bigint;
      readonly logEnd: bigint;
    };

/** Identifies this member's generation inside TxnOffsetCommit (KIP-447). */
export interface GroupMetadata {
  readonly groupId: string;
  readonly generation: number;
  readonly memberId: string;
  readonly groupInstanceId: string | null;
}

export interface CommittedOffset extends PartitionOffset {
  /** The text stored beside the offset; '' when there is none. */
  readonly metadata: string;
}

/** An offset to commit: the NEXT record to read, and a text to keep beside it. */
export interface OffsetToCommit extends PartitionOffset {
  /** Of the last record before the offset, so that a reader which goes on from here notices a log that was cut (KIP-320). */
  readonly leaderEpoch?: number;
  readonly metadata?: string;
}

/** A member of a consumer group. The first `poll` joins. Not for concurrent use: one `poll` at a time. */
export interface GroupConsumer {
  /**
   * The next events in order; an empty list after `maxWaitMs` (0: what is there now). Must be called at least every `maxPollIntervalMs`.
   * After a RetriableError simply poll again. Throws FatalError when the group cannot be joined at all.
   */
  poll(maxWaitMs: number): Promise<readonly ConsumerEvent[]>;
  /** Starts or moves an assigned partition: batches fetched under an older start are never delivered. Also undoes a pause. */
  startFrom(partition: TopicPartition, offset: bigint): void;
  /** No batch of these partitions is delivered until `resume`; what is fetched already is kept. */
  pause(partitions: readonly TopicPartition[]): void;
  resume(partitions: readonly TopicPartition[]): void;
  /**
   * The group's committed offsets, read with `require_stable` (KIP-447): throws RetriableError while a transaction that commits
   * one of them is pending. A partition without a committed offset is absent from the answer.
   */
  committed(partitions: readonly TopicPartition[]): Promise<readonly CommittedOffset[]>;
  /** Commits outside of a transaction, under this generation. Throws StaleGenerationError when that is over. */
  commit(offsets: readonly OffsetToCommit[]): Promise<void>;
  /** Throws StaleGenerationError when this consumer is not a member now. */
  groupMetadata(): GroupMetadata;
  /**
   * The first offset of these partitions' logs, and the one after the last: under `read-committed`, the last stable offset.
   */
  logOffsets(partitions: readonly TopicPartition[]): Promise<ReadonlyMap<string, { readonly start: bigint; readonly end: bigint }>>;
  /** Leaves the group (a static member stays) and closes the connections. Does not commit. Never throws; bounded by `timeoutMs` (default 5 s). */
  close(timeoutMs?: number): Promise<void>;
}

// -------------------------------------------------------------------------------------------------------------- producing

export type Compression = 'none' | 'gzip' | 'snappy' | 'lz4' | 'zstd';

export interface ProducerOptions {
  readonly clientId?: string;
  /** Default `none`. */
  readonly compression?: Compression;
  /**
   * A partition's batch is sent when it holds this many bytes, or sooner while nothing else is being sent; never above the topic's
   * `max.message.bytes`. Default 512 KiB.
   */
  readonly batchBytes?: number;
  /** `ready` waits while this many bytes are buffered or unacknowledged. Default 32 MiB. */
  readonly maxBufferedBytes?: number;
  /** A batch that is not acknowledged after this long fails. Default 30 s. Retries until then keep bytes and sequence. */
  readonly deliveryTimeoutMs?: number;
  /** Deadline of one request, answer included. Default 10 s. */
  readonly requestTimeoutMs?: number;
}

/** What both kinds of producers do. Records of one partition are written in the order of `append`. */
export interface Producer {
  /** Learns partition counts, leaders and size limits. Throws FatalError that names a topic which does not exist. */
  loadTopics(topics: readonly string[]): Promise<void>;
  /** The number of partitions of a loaded topic; undefined for others. */
  partitionCount(topic: string): number | undefined;
  /** The largest record of a loaded topic, in bytes of key, value and headers with their overhead (see `recordBytes`). */
  maxRecordBytes(topic: string): number;
  /** The size that counts against `maxRecordBytes`. */
  recordBytes(key: Payload, value: Payload, headers: Headers): number;
  /**
   * Buffers one record and sends full batches in the background. The topic must be loaded, the partition is always explicit.
   * Throws RecordTooLargeError, and whatever error the background sending met. Copies key and value.
   */
  append(topic: string, partition: number, key: Payload, value: Payload, timestamp: number, headers: Headers): void;
  /** Bytes that are buffered or not acknowledged yet. */
  readonly bufferedBytes: number;
  /** Resolves at once while `bufferedBytes` is below the bound, else when it is again. Throws what the sending met. */
  ready(): Promise<void>;
  /** Sends everything and waits for every acknowledgement. */
  flush(): Promise<void>;
  /** Closes the connections; what is not flushed is dropped. Never throws; bounded by `timeoutMs` (default 5 s). */
  close(timeoutMs?: number): Promise<void>;
}

export interface IdempotentProducer extends Producer {
  /** Takes a producer id. Also mends a producer whose batch failed: what was buffered is dropped, sequences start anew. */
  init(): Promise<void>;
}

export interface TransactionalProducerOptions extends ProducerOptions {
  /** Stable over restarts: the successor fences its predecessor and aborts its transaction at once. */
  readonly transactionalId: string;
  /** Default 10 s. A zombie's open transaction holds back every reader for this long. */
  readonly transactionTimeoutMs?: number;
  readonly failPoints?: FailPoints;
}

/**
 * States: fresh -init-> ready -begin-> open -commit|abort-> ready. Any error of append, ready, flush or sendOffsets leaves `open` only
 * through `abort` or `init`. Any error of commit or abort leaves it only through `init`.
 */
export interface TransactionalProducer extends Producer {
  /**
   * Fences predecessors and resolves their transaction: afterwards it is committed or aborted, and none of its requests can take effect any
   * more. May be called at any time; whatever was open or unknown is resolved by it, and buffers are dropped. Retries CONCURRENT_TRANSACTIONS
   * with a short back-off until the deadline of `transactionTimeoutMs` plus `requestTimeoutMs`.
   */
  init(): Promise<void>;
  /** Local: nothing is sent until there is something to send, so an empty transaction costs nothing. */
  begin(): void;
  /** Adds the group's offsets to the transaction. May be called once, after `flush`. StaleGenerationError: a zombie. */
  sendOffsets(offsets: readonly OffsetToCommit[], group: GroupMetadata): Promise<void>;
  /** Flushes what is left and ends the transaction. OutcomeUnknownError: it may be committed or not; `init`, then read the offsets. */
  commit(): Promise<void>;
  /** Drops the buffers, waits for what is in flight and aborts. */
  abort(): Promise<void>;
  /** Whether `begin` was called and neither commit nor abort has ended it. */
  readonly inTransaction: boolean;
}

// ------------------------------------------------------------------------------------------------------- without a group

export interface LogReaderOptions {
  readonly fetch?: FetchOptions;
  readonly requestTimeoutMs?: number;
}

/** Reads partitions without a group: restore, standby, global tables, verification. One `poll` at a time. */
export interface LogReader {
  /** Starts or moves partitions. */
  startFrom(positions: readonly PartitionOffset[]): void;
  stop(partitions: readonly TopicPartition[]): void;
  /** The next batches; an empty list after `maxWaitMs`. A position outside the log throws FatalError that names the log's bounds. */
  poll(maxWaitMs: number): Promise<readonly FetchedBatch[]>;
  close(timeoutMs?: number): Promise<void>;
}

export interface TopicSpec {
  readonly topic: string;
  readonly partitions: number;
  readonly replicationFactor?: number;
  readonly configs?: Readonly<Record<string, string>>;
}

export interface LogBounds extends TopicPartition {
  readonly start: bigint;
  readonly lastStable: bigint;
  readonly highWatermark: bigint;
}

export interface Admin {
  /** Topics with their number of partitions; those that do not exist are absent. Without a list: all topics. */
  partitionCounts(topics?: readonly string[]): Promise<ReadonlyMap<string, number>>;
  /** Creates and waits until each has leaders. A topic that exists already is left as it is. */
  createTopics(topics: readonly TopicSpec[]): Promise<void>;
  deleteTopics(topics: readonly string[]): Promise<void>;
  topicConfigs(topic: string): Promise<ReadonlyMap<string, string>>;
  /** Start, last stable offset and high watermark of each partition of a topic. `lastStable < highWatermark`: a transaction is open. */
  logBounds(topic: string): Promise<readonly LogBounds[]>;
  /** The committed offsets of a group, without `require_stable`. */
  groupOffsets(groupId: string, topics: readonly string[]): Promise<readonly CommittedOffset[]>;
  /** Deletes all records below these offsets. */
  deleteRecords(offsets: readonly PartitionOffset[]): Promise<void>;
  close(timeoutMs?: number): Promise<void>;
}
