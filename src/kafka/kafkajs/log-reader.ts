import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { FatalError } from '../../model/errors.ts';
import { topicPartitionKey, type PartitionOffset, type TopicPartition } from '../../model/topic-partition.ts';
import type { FetchedBatch, LogReader, LogReaderOptions } from '../port.ts';
import { milliseconds, type ConnectionConfig } from './config.ts';
import { ClusterConnection } from './connection.ts';
import { fetchSettings } from './fetch-settings.ts';
import { Fetcher } from './fetcher.ts';
import type { FeedItem } from './partition-feed.ts';
import { WakeUp } from './wake-up.ts';

/** Throws ConfigurationError that names the option. */
export class KafkaLogReader implements LogReader {
  readonly #control: ClusterConnection;
  readonly #fetcher: Fetcher;
  readonly #news = new WakeUp();
  #failure: FatalError | undefined;
  #closed = false;

  constructor(config: ConnectionConfig, options: LogReaderOptions = {}) {
    this.#control = new ClusterConnection(config);
    this.#fetcher = new Fetcher(config, {
      control: this.#control,
      settings: fetchSettings(options.fetch),
      requestTimeoutMs: milliseconds('requestTimeoutMs', options.requestTimeoutMs, config.requestTimeoutMs),
      onNews: () => this.#news.wake(),
    });
  }

  startFrom(positions: readonly PartitionOffset[]): void {
    for (const position of positions) this.#fetcher.start(position, position.offset);
  }

  stop(partitions: readonly TopicPartition[]): void {
    for (const partition of partitions) this.#fetcher.stop(partition);
  }

  async poll(maxWaitMs: number): Promise<readonly FetchedBatch[]> {
    if (this.#closed) throw new FatalError('the log reader is closed.');
    const deadline = performance.now() + maxWaitMs;
    // Whoever polls without a pause must not keep the sockets and timers from their turn.
    await eventLoopTurn();
    for (;;) {
      if (this.#closed) return [];
      const batches = this.#take();
      if (batches.length > 0) return batches;
      const remainingMs = deadline - performance.now();
      if (remainingMs <= 0) return [];
      await this.#news.wait(remainingMs);
    }
  }

  /** An error waits until everything that came before it is delivered. */
  #take(): FetchedBatch[] {
    if (this.#failure !== undefined) {
      const failure = this.#failure;
      this.#failure = undefined;
      throw failure;
    }
    const batches: FetchedBatch[] = [];
    for (const item of this.#fetcher.take()) {
      if (item.type === 'batch') batches.push(item.batch);
      else this.#failure ??= errorOf(item);
    }
    if (batches.length === 0 && this.#failure !== undefined) return this.#take();
    return batches;
  }

  close(_timeoutMs?: number): Promise<void> {
    this.#closed = true;
    this.#fetcher.close();
    this.#control.close();
    this.#news.wake();
    return Promise.resolve();
  }
}

function errorOf(item: Exclude<FeedItem, { type: 'batch' }>): FatalError {
  switch (item.type) {
    case 'out-of-range':
      return new FatalError(
        `${topicPartitionKey(item.topic, item.partition)}: the position ${item.position} lies outside the log, which holds the offsets from ` +
          `${item.logStart} to below ${item.logEnd}. Records were deleted before they were read (retention), or the topic was created anew.`,
      );
    case 'missing':
      return new FatalError(
        `${topicPartitionKey(item.topic, item.partition)} does not exist. Create the topic, or check its name and its number of partitions.`,
      );
  }
}
