import { FatalError, RecordTooLargeError, RetriableError, TidemarkError } from '../../model/errors.ts';
import type { Headers } from '../../model/headers.ts';
import type { Payload } from '../../model/record.ts';
import { topicPartitionKey, type TopicPartition } from '../../model/topic-partition.ts';
import type { Compression } from '../port.ts';
import type { ClusterConnection } from './connection.ts';
import { EncoderPool } from './encoder-pool.ts';
import type { OutgoingBatch } from './outgoing-batch.ts';
import { PartitionQueue } from './partition-queue.ts';
import { ErrorCode, errorName, isRetriable, toKafkaError } from './wire/error-code.ts';
import { PRODUCE_API_KEY, produceExchange, type ProduceAnswer } from './wire/produce.ts';
import type { ProducerIdentity } from './wire/producer-identity.ts';
import { soleRecordBytes } from './wire/record-batch-encoder.ts';
import { BATCH_HEADER_BYTES } from './wire/record-batch-header.ts';

/**
 * The most that one request carries, unless its first batch alone is larger. Java's default (max.request.size) is 1 MiB with up to five requests
 * in flight; here there is one in flight per broker, so it may be as large as those five together. Far below the broker's
 * socket.request.max.bytes (100 MiB).
 */
const MAX_REQUEST_BYTES = 5 * 1024 * 1024;

export interface SenderOptions {
  readonly compression: Compression;
  readonly batchBytes: number;
  readonly maxBufferedBytes: number;
  readonly deliveryTimeoutMs: number;
  readonly requestTimeoutMs: number;
}

/** Under what name records are sent, and what has to happen before. */
export interface SendingSession {
  readonly identity: ProducerIdentity;
  /** Null for an idempotent producer without transactions. */
  readonly transactionalId: string | null;
  readonly oldestProduceVersion: number;
  readonly newestProduceVersion: number;
  /** Called when the first record of a transaction is appended to a partition. */
  touched?(partition: TopicPartition): void;
  /** Resolves when all partitions that were touched belong to the transaction. What it throws fails the sender. */
  enlisted?(): Promise<void>;
}

/** What the sender needs of a `ClusterConnection`. */
export type SenderConnection = Pick<ClusterConnection, 'send' | 'versions' | 'knownLeader' | 'refresh'>;

interface Lane {
  busy: boolean;
  produceVersion: number | undefined;
}

/** What waits for acknowledgements: of these batches, or, with none given, for room in the buffers. */
interface Waiter {
  readonly batches: Set<OutgoingBatch> | undefined;
  resolve(): void;
  reject(error: Error): void;
}

/**
 * Buffers records per partition, closes batches by bytes and sends them in the background: one request in flight per broker, in it at most one
 * batch per partition. So a partition never has two batches under way, and resending one in place keeps its order. Each batch is tracked until
 * the broker has acknowledged it by itself; a flush waits for exactly these.
 *
 * The first error that no retry mends is kept and thrown by every later call until `start` or `resume`; nothing is sent meanwhile.
 */
export class Sender {
  readonly #connection: SenderConnection;
  readonly #options: SenderOptions;
  readonly #encoders: EncoderPool;
  readonly #topics = new Map<string, { readonly maxBatchBytes: number; readonly queues: PartitionQueue[] }>();
  /** Queues with a closed batch that is not in flight, in the order in which they are to be served. */
  readonly #sendable = new Set<PartitionQueue>();
  /** Queues whose open batch holds records. */
  readonly #opened = new Set<PartitionQueue>();
  readonly #unacknowledged = new Set<OutgoingBatch>();
  readonly #waiters = new Set<Waiter>();
  #lanes = new Map<number, Lane>();
  #session: SendingSession | undefined;
  /** Counts sessions. An answer to a request of an older one is of no interest. */
  #round = 0;
  #transaction = 1;
  #sent = false;
  #bufferedBytes = 0;
  #error: TidemarkError | undefined;
  #abandoning = false;
  #idle: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;
  #refreshing = false;

  constructor(connection: SenderConnection, options: SenderOptions) {
    this.#connection = connection;
    this.#options = options;
    this.#encoders = new EncoderPool(options.maxBufferedBytes);
  }

  get bufferedBytes(): number {
    return this.#bufferedBytes;
  }

  /** Whether any batch was sent since `nextTransaction`, answered or not. */
  get sent(): boolean {
    return this.#sent;
  }

  get error(): TidemarkError | undefined {
    return this.#error;
  }

  setTopic(topic: string, partitionCount: number, maxMessageBytes: number): void {
    const queues = this.#topics.get(topic)?.queues ?? [];
    while (queues.length < partitionCount) queues.push(new PartitionQueue(topic, queues.length));
    this.#topics.set(topic, { maxBatchBytes: maxMessageBytes, queues });
  }

  partitionCount(topic: string): number | undefined {
    return this.#topics.get(topic)?.queues.length;
  }

  maxRecordBytes(topic: string): number {
    const known = this.#topics.get(topic);
    if (known === undefined) throw notLoaded(topic);
    return known.maxBatchBytes - BATCH_HEADER_BYTES;
  }

  /** Drops whatever there is and begins anew: each partition's sequence at 0, as a new epoch has it. */
  start(session: SendingSession): void {
    this.reset();
    this.#session = session;
  }

  /** Drops whatever there is and sends nothing more, until `start`. */
  reset(): void {
    this.#round++;
    this.#session = undefined;
    this.#lanes = new Map();
    this.#sendable.clear();
    this.#opened.clear();
    this.#unacknowledged.clear();
    for (const { queues } of this.#topics.values()) for (const queue of queues) queue.reset(this.#encoders);
    this.#bufferedBytes = 0;
    this.#disarm();
    this.#reject(new RetriableError('The producer was initialised anew while records were being sent; they were dropped.'));
    this.resume();
    this.#idle?.();
  }

  /** The next record of each partition is the first of a transaction. */
  nextTransaction(): void {
    this.#transaction++;
    this.#sent = false;
  }

  append(topic: string, partition: number, key: Payload, value: Payload, timestamp: number, headers: Headers): void {
    if (this.#error !== undefined) throw this.#error;
    const known = this.#topics.get(topic);
    if (known === undefined) throw notLoaded(topic);
    const queue = known.queues[partition];
    if (queue === undefined) {
      throw new FatalError(`${topicPartitionKey(topic, partition)} does not exist: the topic has ${known.queues.length} partitions.`);
    }
    const before = queue.openBytes;
    let appended = queue.append(key, value, timestamp, headers, this.#encoders, known.maxBatchBytes);
    this.#bufferedBytes += queue.openBytes - before;
    if (!appended && this.#close(queue)) {
      appended = queue.append(key, value, timestamp, headers, this.#encoders, known.maxBatchBytes);
      this.#bufferedBytes += queue.openBytes;
      this.#pump();
    }
    if (!appended) throw tooLarge(topic, partition, soleRecordBytes(key, value, headers), known.maxBatchBytes - BATCH_HEADER_BYTES);
    if (queue.transaction !== this.#transaction) {
      queue.transaction = this.#transaction;
      this.#session?.touched?.(queue);
    }
    if (queue.openBytes < this.#options.batchBytes) {
      this.#opened.add(queue);
    } else {
      this.#close(queue);
      this.#pump();
    }
  }

  ready(): Promise<void> {
    if (this.#error !== undefined) return Promise.reject(this.#error);
    if (this.#bufferedBytes < this.#options.maxBufferedBytes) return Promise.resolve();
    // Many half-full batches may be what fills the buffers; nothing but this would send them.
    this.#closeAll();
    return this.#wait(undefined);
  }

  flush(): Promise<void> {
    if (this.#error !== undefined) return Promise.reject(this.#error);
    this.#closeAll();
    return this.#unacknowledged.size === 0 ? Promise.resolve() : this.#wait(new Set(this.#unacknowledged));
  }

  /** Keeps the error until `start` or `resume`, and gives it to all who wait. The first one counts. */
  fail(error: TidemarkError): void {
    if (this.#error !== undefined) return;
    this.#error = error;
    this.#disarm();
    this.#reject(error);
  }

  /**
   * Drops what was never sent and waits for the answers to what was, without sending anything again. False when the broker may have, or may still
   * get, a batch that it did not acknowledge: then its sequence is unknown, and only a new epoch keeps it out of the next transaction.
   */
  async abandon(timeoutMs: number): Promise<boolean> {
    this.#abandoning = true;
    this.#disarm();
    if (!(await this.#untilIdle(timeoutMs))) return false;
    for (const { queues } of this.#topics.values()) {
      for (const queue of queues) if (!queue.empty) this.#bufferedBytes -= queue.dropUnsealed(this.#encoders);
    }
    this.#opened.clear();
    this.#sendable.clear();
    for (const batch of this.#unacknowledged) if (batch.sealed) return false;
    this.#unacknowledged.clear();
    this.#reject(new RetriableError('The transaction was aborted while records were being sent; they were dropped.'));
    return true;
  }

  /** After `abandon` has said true: the session goes on, without its error. */
  resume(): void {
    this.#abandoning = false;
    this.#error = undefined;
  }

  #close(queue: PartitionQueue): boolean {
    const batch = queue.close(performance.now() + this.#options.deliveryTimeoutMs);
    this.#opened.delete(queue);
    if (batch === undefined) return false;
    this.#unacknowledged.add(batch);
    if (!queue.inFlight) this.#sendable.add(queue);
    return true;
  }

  #closeAll(): void {
    for (const queue of this.#opened) this.#close(queue);
    this.#pump();
  }

  #wait(batches: Set<OutgoingBatch> | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiters.add({ batches, resolve, reject });
    });
  }

  #reject(error: Error): void {
    for (const waiter of this.#waiters) waiter.reject(error);
    this.#waiters.clear();
  }

  async #untilIdle(timeoutMs: number): Promise<boolean> {
    const busy = (): boolean => [...this.#lanes.values()].some((lane) => lane.busy);
    if (!busy()) return true;
    return new Promise((resolve) => {
      const done = (idle: boolean): void => {
        clearTimeout(timer);
        this.#idle = undefined;
        resolve(idle);
      };
      const timer = setTimeout(() => done(false), timeoutMs);
      this.#idle = () => {
        if (!busy()) done(true);
      };
    });
  }

  /** Sends whatever can be sent now, and comes back when a delay is over. */
  #pump(): void {
    const session = this.#session;
    if (session === undefined || this.#error !== undefined || this.#abandoning) return;
    const now = performance.now();
    let wakeAt = Infinity;
    let leaderless = false;
    const requests = new Map<number, { bytes: number; readonly queues: PartitionQueue[] }>();
    for (const queue of this.#sendable) {
      const [batch] = queue.batches;
      if (batch === undefined) continue;
      if (now >= batch.deadline) return this.fail(this.#expired(queue));
      wakeAt = Math.min(wakeAt, batch.deadline);
      if (queue.retryAt > now) {
        wakeAt = Math.min(wakeAt, queue.retryAt);
        continue;
      }
      const leader = this.#connection.knownLeader(queue.topic, queue.partition)?.nodeId;
      if (leader === undefined) {
        leaderless = true;
        queue.backOff(now, ErrorCode.LEADER_NOT_AVAILABLE, 'no leader is known');
        wakeAt = Math.min(wakeAt, queue.retryAt);
        continue;
      }
      if (this.#lane(leader).busy) continue;
      const request = requests.get(leader);
      if (request === undefined) requests.set(leader, { bytes: batch.size, queues: [queue] });
      else if (request.bytes + batch.size <= MAX_REQUEST_BYTES) {
        request.bytes += batch.size;
        request.queues.push(queue);
      }
    }
    for (const [nodeId, { queues }] of requests) void this.#deliver(session, nodeId, queues);
    if (leaderless) this.#refreshLeaders();
    this.#disarm();
    if (wakeAt < Infinity) this.#timer = setTimeout(() => this.#pump(), Math.max(1, Math.ceil(wakeAt - now)));
  }

  /** Never rejects: what goes wrong ends in a retry or in `fail`. */
  async #deliver(session: SendingSession, nodeId: number, queues: readonly PartitionQueue[]): Promise<void> {
    const round = this.#round;
    const lane = this.#lane(nodeId);
    lane.busy = true;
    for (const queue of queues) {
      queue.inFlight = true;
      this.#sendable.delete(queue);
    }
    try {
      await session.enlisted?.();
      if (round !== this.#round || this.#abandoning || this.#error !== undefined) return;
      const answer = await this.#send(session, nodeId, lane, queues);
      if (round === this.#round && answer !== undefined) this.#settle(queues, answer);
    } catch (error) {
      if (round === this.#round) this.fail(asKafkaError(error));
    } finally {
      if (round === this.#round) {
        lane.busy = false;
        for (const queue of queues) {
          queue.inFlight = false;
          if (queue.batches.length > 0) this.#sendable.add(queue);
        }
        this.#idle?.();
        this.#pump();
      }
    }
  }

  /** Undefined after a connection error, which all of the queues retry. */
  async #send(session: SendingSession, nodeId: number, lane: Lane, queues: readonly PartitionQueue[]): Promise<ProduceAnswer | undefined> {
    const round = this.#round;
    try {
      const version = lane.produceVersion ?? (await this.#produceVersion(session, nodeId));
      lane.produceVersion = version;
      if (round !== this.#round || this.#abandoning) return undefined;
      const batches = queues.map((queue) => this.#sealed(session, queue));
      this.#sent = true;
      const { requestTimeoutMs } = this.#options;
      const { transactionalId } = session;
      return await this.#connection.send(nodeId, produceExchange({ version, transactionalId, timeoutMs: requestTimeoutMs, batches }), {
        timeoutMs: requestTimeoutMs,
      });
    } catch (error) {
      if (!(error instanceof RetriableError)) throw error;
      if (round !== this.#round) return undefined;
      // The broker may speak another version when it comes back.
      lane.produceVersion = undefined;
      const now = performance.now();
      for (const queue of queues) queue.backOff(now, ErrorCode.NETWORK_EXCEPTION, error.message);
      this.#refreshLeaders();
      return undefined;
    }
  }

  #sealed(session: SendingSession, queue: PartitionQueue): OutgoingBatch {
    const batch = queue.batches[0]!;
    if (!batch.sealed) {
      batch.seal(session.identity, queue.takeSequence(batch.count), session.transactionalId !== null, this.#options.compression);
    }
    return batch;
  }

  async #produceVersion(session: SendingSession, nodeId: number): Promise<number> {
    const range = await this.#connection.versions(nodeId, PRODUCE_API_KEY, this.#options.requestTimeoutMs);
    const version = Math.min(session.newestProduceVersion, range?.maxVersion ?? 0);
    // Below, the connection itself says what the broker lacks.
    return Math.max(version, session.oldestProduceVersion);
  }

  #settle(queues: readonly PartitionQueue[], answer: ProduceAnswer): void {
    const now = performance.now();
    const results = new Map(answer.results.map((result) => [topicPartitionKey(result.topic, result.partition), result]));
    let leadersMoved = false;
    for (const queue of queues) {
      const batch = queue.batches[0]!;
      const result = results.get(topicPartitionKey(queue.topic, queue.partition));
      const code = result?.errorCode ?? ErrorCode.UNKNOWN_SERVER_ERROR;
      // A duplicate has been written by an attempt whose answer was lost.
      if (code === ErrorCode.NONE || code === ErrorCode.DUPLICATE_SEQUENCE_NUMBER) {
        queue.acknowledge();
        this.#acknowledged(batch);
      } else if (result === undefined || isRetriable(code)) {
        queue.backOff(now, code, result === undefined ? 'the answer did not mention it' : errorName(code));
        leadersMoved ||= code !== ErrorCode.CONCURRENT_TRANSACTIONS;
      } else {
        this.fail(produceError(code, queue, result.errorMessage));
      }
    }
    if (leadersMoved) this.#refreshLeaders();
  }

  #acknowledged(batch: OutgoingBatch): void {
    this.#unacknowledged.delete(batch);
    this.#bufferedBytes -= batch.size;
    this.#encoders.give(batch.encoder);
    const room = this.#bufferedBytes < this.#options.maxBufferedBytes;
    for (const waiter of this.#waiters) {
      waiter.batches?.delete(batch);
      if (waiter.batches === undefined ? !room : waiter.batches.size > 0) continue;
      this.#waiters.delete(waiter);
      waiter.resolve();
    }
  }

  #refreshLeaders(): void {
    if (this.#refreshing) return;
    this.#refreshing = true;
    this.#connection
      .refresh(this.#options.requestTimeoutMs)
      // The batches wait with a back-off of their own, and what is wrong with the cluster they will find out themselves.
      .catch((error: unknown) => {
        if (!(error instanceof RetriableError)) this.fail(asKafkaError(error));
      })
      .finally(() => {
        this.#refreshing = false;
        this.#pump();
      });
  }

  #lane(nodeId: number): Lane {
    let lane = this.#lanes.get(nodeId);
    if (lane === undefined) this.#lanes.set(nodeId, (lane = { busy: false, produceVersion: undefined }));
    return lane;
  }

  #disarm(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #expired(queue: PartitionQueue): RetriableError {
    const why = queue.lastFailure === '' ? 'requests before it took all the time' : queue.lastFailure;
    return new RetriableError(
      `A batch for ${topicPartitionKey(queue.topic, queue.partition)} was not acknowledged within deliveryTimeoutMs ` +
        `(${this.#options.deliveryTimeoutMs} ms): ${why}.`,
    );
  }
}

function produceError(code: number, { topic, partition }: TopicPartition, detail: string | null): TidemarkError {
  // Transaction verification (KIP-890) in brokers that have no code of its own for it: the partition is not in an open transaction.
  if (code === ErrorCode.INVALID_TXN_STATE) {
    return new RetriableError(`Produce of ${topicPartitionKey(topic, partition)} answered ${errorName(code)}: abort and do it again.`);
  }
  return toKafkaError(code, { api: 'Produce', topic, partition, detail });
}

function asKafkaError(error: unknown): TidemarkError {
  if (error instanceof TidemarkError) return error;
  return new FatalError(`Producing failed: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
}

function notLoaded(topic: string): FatalError {
  return new FatalError(`Topic '${topic}' is not loaded. Call loadTopics before the first record is written to it.`);
}

function tooLarge(topic: string, partition: number, bytes: number, maxBytes: number): RecordTooLargeError {
  return new RecordTooLargeError(
    `A record for ${topicPartitionKey(topic, partition)} takes ${bytes} bytes; the topic takes at most ${maxBytes}. ` +
      'Raise max.message.bytes of the topic, or write less.',
  );
}
