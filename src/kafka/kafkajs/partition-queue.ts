import type { Headers } from '../../model/headers.ts';
import type { Payload } from '../../model/record.ts';
import { concurrentTransactionsBackOff, movingBackOff } from './back-off.ts';
import type { EncoderPool } from './encoder-pool.ts';
import { OutgoingBatch } from './outgoing-batch.ts';
import { ErrorCode } from './wire/error-code.ts';
import type { RecordBatchEncoder } from './wire/record-batch-encoder.ts';
import { advanceSequence } from './wire/sequence.ts';

/** What is to be written to one partition, in order: batches that wait or are in flight, and one that still takes records. */
export class PartitionQueue {
  readonly topic: string;
  readonly partition: number;
  readonly batches: OutgoingBatch[] = [];
  /** The first batch is in a request that was not answered yet. */
  inFlight = false;
  /** Monotonic time before which the first batch is not sent again. */
  retryAt = 0;
  /** The transaction that a record was last appended in, by the sender's count. */
  transaction = 0;
  /** Why the first batch had to be sent again, for the message when its time is over. */
  lastFailure = '';
  #open: RecordBatchEncoder | undefined;
  #nextSequence = 0;
  readonly #moving = movingBackOff();
  readonly #concurrent = concurrentTransactionsBackOff();

  constructor(topic: string, partition: number) {
    this.topic = topic;
    this.partition = partition;
  }

  /** Bytes of the batch that takes records, 0 when there is none. */
  get openBytes(): number {
    return this.#open === undefined ? 0 : this.#open.bytes;
  }

  get empty(): boolean {
    return this.#open === undefined && this.batches.length === 0;
  }

  /** False when the record does not fit into the open batch, or, if that is empty, into any. */
  append(key: Payload, value: Payload, timestamp: number, headers: Headers, encoders: EncoderPool, maxBatchBytes: number): boolean {
    this.#open ??= encoders.take(maxBatchBytes);
    return this.#open.append(key, value, timestamp, headers);
  }

  /** Closes the open batch; undefined when it holds no record. */
  close(deadline: number): OutgoingBatch | undefined {
    const encoder = this.#open;
    if (encoder === undefined || encoder.count === 0) return undefined;
    const batch = new OutgoingBatch(this.topic, this.partition, encoder, deadline);
    this.#open = undefined;
    this.batches.push(batch);
    return batch;
  }

  /** The next number in the sequence; moves it on. */
  takeSequence(count: number): number {
    const sequence = this.#nextSequence;
    this.#nextSequence = advanceSequence(sequence, count);
    return sequence;
  }

  backOff(now: number, errorCode: number, failure: string): void {
    this.lastFailure = failure;
    this.retryAt = now + (errorCode === ErrorCode.CONCURRENT_TRANSACTIONS ? this.#concurrent : this.#moving).next();
  }

  /** The first batch is acknowledged. */
  acknowledge(): void {
    this.batches.shift();
    this.retryAt = 0;
    this.lastFailure = '';
    this.#moving.reset();
    this.#concurrent.reset();
  }

  /** Drops what has no place in the sequence yet, and gives the bytes that this frees. */
  dropUnsealed(encoders: EncoderPool): number {
    let bytes = this.openBytes;
    if (this.#open !== undefined) encoders.give(this.#open);
    this.#open = undefined;
    for (let last = this.batches.at(-1); last !== undefined && !last.sealed; last = this.batches.at(-1)) {
      bytes += last.size;
      encoders.give(last.encoder);
      this.batches.pop();
    }
    return bytes;
  }

  /** Drops everything; the next batch begins a sequence. Bytes of sealed batches may still be read, so their encoders go. */
  reset(encoders: EncoderPool): void {
    this.dropUnsealed(encoders);
    this.batches.length = 0;
    this.inFlight = false;
    this.retryAt = 0;
    this.lastFailure = '';
    this.#nextSequence = 0;
    this.#moving.reset();
    this.#concurrent.reset();
  }
}
