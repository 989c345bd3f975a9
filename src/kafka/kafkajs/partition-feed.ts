import type { TopicPartition } from '../../model/topic-partition.ts';
import { topicPartitionKey } from '../../model/topic-partition.ts';
import type { FetchedBatch } from '../port.ts';
import { BackOff } from './back-off.ts';

/** The position of a partition lies outside its log. */
export interface OutOfRange extends TopicPartition {
  readonly position: bigint;
  readonly logStart: bigint;
  readonly logEnd: bigint;
}

/** What a partition brings, in order. */
export type FeedItem =
  | { readonly type: 'batch'; readonly batch: FetchedBatch }
  | ({ readonly type: 'out-of-range' } & OutOfRange)
  /** The broker has not known the partition for longer than a new topic takes to be known everywhere. */
  | ({ readonly type: 'missing' } & TopicPartition);

/**
 * One partition from one start on: where it stands, what waits to be taken, and why it is not fetched now. A new start makes a new feed, so
 * whatever still comes for the old one finds nobody.
 */
export class PartitionFeed {
  readonly topic: string;
  readonly partition: number;
  readonly key: string;
  /** Where the next fetch begins. */
  position: bigint;
  paused = false;
  /** A fetch that contains it is on its way. */
  inFlight = false;
  /** Nothing is fetched: the position is being looked up, or was found outside the log. */
  halted = false;
  /** No fetch before this time (monotonic milliseconds). */
  retryAt = 0;
  /** Since when the broker has not known it; undefined while it does. */
  missingSince: number | undefined;
  reportedMissing = false;
  /** How often in a row the batch at `position` has arrived damaged. */
  damages = 0;
  queuedBytes = 0;
  readonly #queue: FeedItem[] = [];
  readonly #backOff = new BackOff(50, 1_000);

  constructor({ topic, partition }: TopicPartition, position: bigint) {
    this.topic = topic;
    this.partition = partition;
    this.key = topicPartitionKey(topic, partition);
    this.position = position;
  }

  get waiting(): boolean {
    return this.#queue.length > 0;
  }

  push(item: FeedItem): void {
    this.#queue.push(item);
    if (item.type === 'batch') this.queuedBytes += item.batch.bytes;
  }

  /** What waits, up to about this many bytes. */
  take(maxBytes: number): FeedItem[] {
    let count = 0;
    for (let bytes = 0; count < this.#queue.length && bytes < maxBytes; count++) {
      const item = this.#queue[count]!;
      if (item.type === 'batch') bytes += item.batch.bytes;
    }
    const taken = this.#queue.splice(0, count);
    for (const item of taken) if (item.type === 'batch') this.queuedBytes -= item.batch.bytes;
    return taken;
  }

  /** The broker answered as it should. */
  succeeded(): void {
    this.#backOff.reset();
    this.missingSince = undefined;
    this.reportedMissing = false;
  }

  /** Not to be asked again for a while, which grows. */
  failed(now: number): void {
    this.retryAt = now + this.#backOff.next();
  }
}
