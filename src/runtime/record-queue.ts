import type { FetchedBatch } from '../kafka/port.ts';
import type { ConsumedRecord } from '../model/record.ts';

/** The batches of one partition that wait to be processed. Records are decoded one by one, so its size is that of the bytes it holds. */
export class RecordQueue {
  /** The next record; undefined when everything is processed. */
  head: ConsumedRecord | undefined;
  /** Of the batch that was begun last. */
  leaderEpoch: number | undefined;
  #batches: FetchedBatch[] = [];
  #current = 0;
  #bytes = 0;
  #end: bigint;

  constructor(start: bigint) {
    this.#end = start;
  }

  /** The offset of the next record, or what follows the last batch: passes over control batches and holes. */
  get position(): bigint {
    return this.head === undefined ? this.#end : this.head.offset;
  }

  /** Of the batches that are not processed to their end. */
  get bytes(): number {
    return this.#bytes;
  }

  add(batch: FetchedBatch): void {
    this.#end = batch.nextOffset;
    this.#batches.push(batch);
    this.#bytes += batch.bytes;
    if (this.head === undefined) this.advance();
  }

  /** Goes on to the next record. */
  advance(): void {
    let batch = this.#batches[this.#current];
    while (batch !== undefined) {
      this.leaderEpoch = batch.leaderEpoch;
      const record = batch.records.next();
      if (record !== undefined) {
        this.head = record;
        return;
      }
      this.#bytes -= batch.bytes;
      batch = this.#batches[++this.#current];
      if (this.#current === 64) {
        this.#batches = this.#batches.slice(64);
        this.#current = 0;
      }
    }
    this.head = undefined;
    this.#batches.length = 0;
    this.#current = 0;
  }

  /** Drops everything and stands at `offset`. */
  clear(offset: bigint): void {
    this.head = undefined;
    this.leaderEpoch = undefined;
    this.#batches.length = 0;
    this.#current = 0;
    this.#bytes = 0;
    this.#end = offset;
  }

  /** What comes after the batches that are here begins at `offset`: the log was cut, and reading goes on there. */
  continueAt(offset: bigint): void {
    this.#end = offset;
  }
}
