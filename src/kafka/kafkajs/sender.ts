import { FatalError, RetriableError, TidemarkError } from '../../model/errors.ts';
import type { Headers } from '../../model/headers.ts';
import type { Payload } from '../../model/record.ts';
import { topicPartitionKey, type TopicPartition } from '../../model/topic-partition.ts';
import type { Compression } from '../port.ts';
import { Acknowledgements } from './acknowledgements.ts';
import type { ClusterConnection } from './connection.ts';
import type { OutgoingBatch } from './outgoing-batch.ts';
import type { PartitionQueue } from './partition-queue.ts';
import { RecordBuffers, type RecordBuffersOptions } from './record-buffers.ts';
import { ErrorCode, errorName, isRetriable, toKafkaError } from './wire/error-code.ts';
import { PRODUCE_API_KEY, produceExchange, type ProduceAnswer } from './wire/produce.ts';
import type { ProducerIdentity } from './wire/producer-identity.ts';

/**
 * The most that one request carries, unless its first batch alone is larger. Java's default (max.request.size) is 1 MiB with up to five requests
 * in flight; here there is one in flight per broker, so it may be as large as those five together. Far below the broker's
 * socket.request.max.bytes (100 MiB).
 */
const MAX_REQUEST_BYTES = 5 * 1024 * 1024;

/**
 * With no request under way, a batch of this size is sent although it is not full (Java's producer sends at this size by default): what is written
 * while records are still being processed does not have to be waited for at the commit.
 */
const EARLY_BYTES = 16 * 1024;

export interface SenderOptions extends RecordBuffersOptions {
  readonly compression: Compression;
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
  readonly #buffers: RecordBuffers;
  readonly #acknowledgements = new Acknowledgements();
  /** Queues with a closed batch that is not in flight, in the order in which they are to be served. */
  readonly #sendable = new Set<PartitionQueue>();
  #lanes = new Map<number, Lane>();
  #session: SendingSession | undefined;
  /** Counts sessions. An answer to a request of an older one is of no interest. */
  #round = 0;
  #transaction = 1;
  #sent = false;
  #error: TidemarkError | undefined;
  #abandoning = false;
  #idle: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;
  #refreshing = false;
  #pumping = false;

  constructor(connection: SenderConnection, options: SenderOptions) {
    this.#connection = connection;
    this.#options = options;
    this.#buffers = new RecordBuffers(options, (queue, batch) => this.#closed(queue, batch));
  }

  get bufferedBytes(): number {
    return this.#buffers.bytes;
  }

  /** Whether any batch was sent since `nextTransaction`, answered or not. */
  get sent(): boolean {
    return this.#sent;
  }

  get error(): TidemarkError | undefined {
    return this.#error;
  }

  setTopic(topic: string, partitionCount: number, maxMessageBytes: number): void {
    this.#buffers.setTopic(topic, partitionCount, maxMessageBytes);
  }

  partitionCount(topic: string): number | undefined {
    return this.#buffers.partitionCount(topic);
  }

  maxRecordBytes(topic: string): number {
    return this.#buffers.maxRecordBytes(topic);
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
    this.#buffers.reset();
    this.#disarm();
    this.#acknowledgements.drop(new RetriableError('The producer was initialised anew while records were being sent; they were dropped.'));
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
    const queue = this.#buffers.append(topic, partition, key, value, timestamp, headers);
    if (queue.transaction !== this.#transaction) {
      queue.transaction = this.#transaction;
      this.#session?.touched?.(queue);
    }
  }

  ready(): Promise<void> {
    if (this.#error !== undefined) return Promise.reject(this.#error);
    if (!this.#buffers.full) {
      if (!this.#busy) this.#buffers.closeAll(EARLY_BYTES);
      return Promise.resolve();
    }
    // Many half-full batches may be what fills the buffers; nothing but this would send them.
    this.#buffers.closeAll();
    return this.#acknowledgements.room();
  }

  flush(): Promise<void> {
    if (this.#error !== undefined) return Promise.reject(this.#error);
    this.#buffers.closeAll();
    return this.#acknowledgements.all();
  }

  /** Keeps the error until `start` or `resume`, and gives it to all who wait. The first one counts. */
  fail(error: TidemarkError): void {
    if (this.#error !== undefined) return;
    this.#error = error;
    this.#disarm();
    this.#acknowledgements.reject(error);
  }

  /**
   * Drops what was never sent and waits for the answers to what was, without sending anything again. False when the broker may have, or may still
   * get, a batch that it did not acknowledge: then its sequence is unknown, and only a new epoch keeps it out of the next transaction.
   */
  async abandon(timeoutMs: number): Promise<boolean> {
    this.#abandoning = true;
    this.#disarm();
    if (!(await this.#untilIdle(timeoutMs))) return false;
    this.#buffers.dropUnsealed();
    this.#sendable.clear();
    if (this.#acknowledgements.unsure) return false;
    this.#acknowledgements.drop(new RetriableError('The transaction was aborted while records were being sent; they were dropped.'));
    return true;
  }

  /** After `abandon` has said true: the session goes on, without its error. */
  resume(): void {
    this.#abandoning = false;
    this.#error = undefined;
  }

  get #busy(): boolean {
    for (const lane of this.#lanes.values()) if (lane.busy) return true;
    return false;
  }

  #closed(queue: PartitionQueue, batch: OutgoingBatch): void {
    this.#acknowledgements.expect(batch);
    if (queue.inFlight) return;
    this.#sendable.add(queue);
    this.#pumpSoon();
  }

  async #untilIdle(timeoutMs: number): Promise<boolean> {
    if (!this.#busy) return true;
    return new Promise((resolve) => {
      const done = (idle: boolean): void => {
        clearTimeout(timer);
        this.#idle = undefined;
        resolve(idle);
      };
      const timer = setTimeout(() => done(false), timeoutMs);
      this.#idle = () => {
        if (!this.#busy) done(true);
      };
    });
  }

  /** One look for all batches that are closed in the same go. */
  #pumpSoon(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    queueMicrotask(() => {
      this.#pumping = false;
      this.#pump();
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
        this.#buffers.release(queue, batch);
        this.#acknowledgements.received(batch, !this.#buffers.full);
      } else if (result === undefined || isRetriable(code)) {
        queue.backOff(now, code, result === undefined ? 'the answer did not mention it' : errorName(code));
        leadersMoved ||= code !== ErrorCode.CONCURRENT_TRANSACTIONS;
      } else {
        this.fail(produceError(code, queue, result.errorMessage));
      }
    }
    if (leadersMoved) this.#refreshLeaders();
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
