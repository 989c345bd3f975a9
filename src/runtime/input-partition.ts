import type { FetchedBatch } from '../kafka/port.ts';
import type { TopicPartition } from '../model/topic-partition.ts';
import { type RecordReader, recordReader } from '../serde/record-reader.ts';
import type { SourceNode } from '../topology/graph.ts';
import type { TopicCounters } from '../ops/metrics.ts';
import { RecordQueue } from './record-queue.ts';

/** A source partition that this worker owns: its queue, and how far it is processed and committed. */
export class InputPartition implements TopicPartition {
  readonly topic: string;
  readonly partition: number;
  readonly source: SourceNode;
  readonly reader: RecordReader;
  readonly counters: TopicCounters;
  readonly queue = new RecordQueue(0n);
  /**
   * - `new`: it is not known yet where to begin.
   * - `verifying`: it stands somewhere, but whether what came before is committed must be read from the group.
   */
  state: 'new' | 'verifying' | 'running' = 'new';
  /** Where to go back to when what was done since is dropped. */
  committed = 0n;
  /** Whether `committed` is kept by the group, and not only where this worker began. */
  stored = false;
  paused = false;
  highWatermark = 0n;
  /** At-most-once: batches that may not be processed before their offset is committed. */
  #held: FetchedBatch[] = [];
  #heldBytes = 0;

  constructor({ topic, partition }: TopicPartition, source: SourceNode, counters: TopicCounters) {
    this.topic = topic;
    this.partition = partition;
    this.source = source;
    this.reader = recordReader(topic, source.keySerde, source.valueSerde);
    this.counters = counters;
  }

  /** Whether its position is to be committed. */
  get moved(): boolean {
    return this.state === 'running' && (!this.stored || this.queue.position !== this.committed);
  }

  get bufferedBytes(): number {
    return this.queue.bytes + this.#heldBytes;
  }

  get lag(): number {
    return this.state !== 'new' ? Math.max(0, Number(this.highWatermark - this.queue.position)) : 0;
  }

  startFrom(offset: bigint, stored: boolean): void {
    this.queue.clear(offset);
    this.#held.length = 0;
    this.#heldBytes = 0;
    this.committed = offset;
    this.stored = stored;
    this.state = 'running';
  }

  /** The position that it stands at is the committed one. */
  confirm(): void {
    this.markCommitted(this.queue.position);
    this.state = 'running';
  }

  markCommitted(offset: bigint): void {
    this.committed = offset;
    this.stored = true;
  }

  add(batch: FetchedBatch): void {
    this.#see(batch);
    this.queue.add(batch);
  }

  hold(batch: FetchedBatch): void {
    this.#see(batch);
    this.#held.push(batch);
    this.#heldBytes += batch.bytes;
  }

  /** The position after the held batches; undefined when there are none. */
  get heldEnd(): bigint | undefined {
    return this.#held.at(-1)?.nextOffset;
  }

  /** Their offset is committed: they may be processed. */
  release(): void {
    const end = this.heldEnd;
    if (end !== undefined) this.markCommitted(end);
    for (const batch of this.#held) this.queue.add(batch);
    this.#held.length = 0;
    this.#heldBytes = 0;
  }

  #see(batch: FetchedBatch): void {
    this.highWatermark = batch.highWatermark;
    this.counters.bytes += batch.bytes;
  }
}
