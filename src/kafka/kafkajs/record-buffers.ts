import { FatalError, RecordTooLargeError } from '../../model/errors.ts';
import type { Headers } from '../../model/headers.ts';
import type { Payload } from '../../model/record.ts';
import { topicPartitionKey } from '../../model/topic-partition.ts';
import { EncoderPool } from './encoder-pool.ts';
import type { OutgoingBatch } from './outgoing-batch.ts';
import { PartitionQueue } from './partition-queue.ts';
import { soleRecordBytes } from './wire/record-batch-encoder.ts';
import { BATCH_HEADER_BYTES } from './wire/record-batch-header.ts';

export interface RecordBuffersOptions {
  readonly batchBytes: number;
  readonly maxBufferedBytes: number;
  readonly deliveryTimeoutMs: number;
}

interface LoadedTopic {
  /** `max.message.bytes`, which bounds a batch. */
  readonly maxBatchBytes: number;
  readonly queues: PartitionQueue[];
}

/** The queues of all partitions, and the records in them that are not acknowledged, counted in bytes. */
export class RecordBuffers {
  readonly #options: RecordBuffersOptions;
  readonly #onClosed: (queue: PartitionQueue, batch: OutgoingBatch) => void;
  readonly #encoders: EncoderPool;
  readonly #topics = new Map<string, LoadedTopic>();
  /** Queues whose open batch holds records. */
  readonly #opened = new Set<PartitionQueue>();
  #bytes = 0;

  /** `onClosed` is told of each batch that takes no more records. */
  constructor(options: RecordBuffersOptions, onClosed: (queue: PartitionQueue, batch: OutgoingBatch) => void) {
    this.#options = options;
    this.#onClosed = onClosed;
    this.#encoders = new EncoderPool(options.maxBufferedBytes);
  }

  get bytes(): number {
    return this.#bytes;
  }

  get full(): boolean {
    return this.#bytes >= this.#options.maxBufferedBytes;
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
    return this.#topic(topic).maxBatchBytes - BATCH_HEADER_BYTES;
  }

  /** Gives the queue that took the record. Closes its batch when that is full. */
  append(topic: string, partition: number, key: Payload, value: Payload, timestamp: number, headers: Headers): PartitionQueue {
    const { queues, maxBatchBytes } = this.#topic(topic);
    const queue = queues[partition];
    if (queue === undefined) {
      throw new FatalError(`${topicPartitionKey(topic, partition)} does not exist: the topic has ${queues.length} partitions.`);
    }
    const before = queue.openBytes;
    let appended = queue.append(key, value, timestamp, headers, this.#encoders, maxBatchBytes);
    this.#bytes += queue.openBytes - before;
    if (!appended && this.#close(queue)) {
      appended = queue.append(key, value, timestamp, headers, this.#encoders, maxBatchBytes);
      this.#bytes += queue.openBytes;
    }
    if (!appended) throw tooLarge(topic, partition, soleRecordBytes(key, value, headers), maxBatchBytes - BATCH_HEADER_BYTES);
    if (queue.openBytes < this.#options.batchBytes) this.#opened.add(queue);
    else this.#close(queue);
    return queue;
  }

  /** Closes all batches that hold records, or only those of this size and larger. */
  closeAll(leastBytes = 0): void {
    for (const queue of this.#opened) if (queue.openBytes >= leastBytes) this.#close(queue);
  }

  /** The first batch of the queue is acknowledged: its bytes are needed no more. */
  release(queue: PartitionQueue, batch: OutgoingBatch): void {
    queue.acknowledge();
    this.#bytes -= batch.size;
    this.#encoders.give(batch.encoder);
  }

  /** Drops whatever was not sent yet. */
  dropUnsealed(): void {
    for (const { queues } of this.#topics.values()) {
      for (const queue of queues) if (!queue.empty) this.#bytes -= queue.dropUnsealed(this.#encoders);
    }
    this.#opened.clear();
  }

  /** Drops everything, and begins each partition's sequence at 0. */
  reset(): void {
    for (const { queues } of this.#topics.values()) for (const queue of queues) queue.reset(this.#encoders);
    this.#opened.clear();
    this.#bytes = 0;
  }

  #close(queue: PartitionQueue): boolean {
    const batch = queue.close(performance.now() + this.#options.deliveryTimeoutMs);
    this.#opened.delete(queue);
    if (batch === undefined) return false;
    this.#onClosed(queue, batch);
    return true;
  }

  #topic(topic: string): LoadedTopic {
    const known = this.#topics.get(topic);
    if (known === undefined) {
      throw new FatalError(`Topic '${topic}' is not loaded. Call loadTopics before the first record is written to it.`);
    }
    return known;
  }
}

function tooLarge(topic: string, partition: number, bytes: number, maxBytes: number): RecordTooLargeError {
  return new RecordTooLargeError(
    `A record for ${topicPartitionKey(topic, partition)} takes ${bytes} bytes; the topic takes at most ${maxBytes}. ` +
      'Raise max.message.bytes of the topic, or write less.',
  );
}
