import type { Clock, Random } from '../model/clock.ts';
import { SinkFatalError, SinkFencedError, SinkRetriableError } from '../model/errors.ts';
import { topicPartitionKey, type TopicPartition } from '../model/topic-partition.ts';
import type { Log } from '../ops/log.ts';
import type { SinkCounters } from '../ops/metrics.ts';
import type { SinkBatch, SinkWriter } from '../sink/port.ts';
import { Signal } from './signal.ts';
import type { SinkBatchBuilder } from './sink-batch-builder.ts';
import type { SinkHealth } from './sink-health.ts';
import type { SinkTuning } from './sink-tuning.ts';
import type { WriteSlots } from './write-slots.ts';

/** What a partition needs of its worker. */
export interface SinkPartitionHost {
  readonly writer: SinkWriter<unknown, unknown>;
  readonly slots: WriteSlots;
  readonly health: SinkHealth;
  readonly counters: SinkCounters;
  readonly tuning: SinkTuning;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Lets sockets and timers run once. */
  readonly turn: () => Promise<void>;
  /** At-most-once: the offset is committed before each batch is written. */
  readonly commitsFirst: boolean;
  /** Commits an offset of this partition as soon as possible. False: this member is not its owner any more. */
  commitNow(partition: SinkPartition, offset: bigint): Promise<boolean>;
  /** Something has changed that the worker's loop has to see to. */
  wake(): void;
  /** Stops the stage. */
  fail(error: unknown): void;
}

/** More in a row, without a batch written between, is not a rebalance: two owners take the partition from each other. */
const MAX_FENCED_IN_A_ROW = 10;

/**
 * One partition of a stage, from the claim to its end: builds batches of what was read and writes them one by one, so that order is kept. It
 * runs beside the worker's loop, which goes on polling the group however long the target takes.
 */
export class SinkPartition implements TopicPartition {
  readonly topic: string;
  readonly partition: number;
  readonly builder: SinkBatchBuilder;
  /** The position that is known to be applied. Undefined before the first claim. */
  applied: bigint | undefined;
  /** The offset that the group is known to have. */
  committed: bigint | undefined;
  /** Set where the consumer has to be moved: the worker's loop does it, and calls `started`. */
  startAt: bigint | undefined;
  paused = false;
  highWatermark = 0n;
  readonly #host: SinkPartitionHost;
  readonly #signal: Signal;
  readonly #end = new AbortController();
  #finishing = false;
  /** Whether it stands still, with nothing in hand. */
  #idle = false;
  #failures = 0;
  #fencedInARow = 0;
  #firstAt: number | undefined;

  constructor({ topic, partition }: TopicPartition, builder: SinkBatchBuilder, host: SinkPartitionHost) {
    this.topic = topic;
    this.partition = partition;
    this.builder = builder;
    this.#host = host;
    this.#signal = new Signal(host.clock);
  }

  get closed(): boolean {
    return this.#end.signal.aborted;
  }

  /** Whether what was in hand is written, after `finish`. */
  get finished(): boolean {
    return this.closed || this.#idle;
  }

  get lag(): number {
    return this.applied === undefined ? 0 : Math.max(0, Number(this.highWatermark - this.applied));
  }

  /** There is something to do. */
  wake(): void {
    this.#signal.wake();
  }

  /** Write what is in hand without waiting for more, then stand still until `resume`. */
  finish(): void {
    this.#finishing = true;
    this.wake();
  }

  resume(): void {
    this.#finishing = false;
    this.wake();
  }

  /** Not ours any more: nothing new is begun. */
  close(): void {
    this.#end.abort();
    this.#host.health.forget(this);
    this.wake();
  }

  /** The consumer stands at `startAt`, or at `readFrom` where that does not exist any more. */
  started(readFrom: bigint): void {
    const from = this.startAt;
    if (from === undefined) return;
    this.startAt = undefined;
    this.builder.restart(from, readFrom);
    this.wake();
  }

  /** Claims the partition and writes batches until it is closed. `start`: where the group's offsets would begin. Never rejects. */
  async run(start: bigint, predecessor: Promise<void> | undefined): Promise<void> {
    try {
      // The same partition, given up and got back: its last write must have ended, or it would take our epoch for its own.
      await predecessor;
      const position = await this.#claim(start);
      if (position === undefined) return;
      this.#moveTo(position);
      while (!this.closed) {
        const batch = await this.#nextBatch();
        if (batch !== undefined) await this.#writeUntilDone(batch);
      }
    } catch (error) {
      if (!this.closed) this.#host.fail(error);
    } finally {
      this.#idle = true;
      this.#host.wake();
    }
  }

  // -------------------------------------------------------------------------------------------------------------- gathering

  /** Undefined: closed. */
  async #nextBatch(): Promise<SinkBatch<unknown, unknown> | undefined> {
    const { tuning, clock, turn } = this.#host;
    while (!this.closed) {
      if (this.startAt !== undefined) {
        await this.#stand();
        continue;
      }
      const { builder } = this;
      const result = this.#finishing ? 'drained' : builder.fill();
      if (builder.moved) this.#firstAt ??= clock.monotonic();
      if (result === 'slice') {
        await turn();
        continue;
      }
      if (builder.moved) {
        // Positions without a record only have to be written now and then, so that a restart need not look at everything again.
        const patienceMs = builder.size > 0 ? tuning.lingerMs : tuning.positionIntervalMs;
        const waitedMs = clock.monotonic() - (this.#firstAt ?? 0);
        if (result !== 'drained' || this.#finishing || waitedMs >= patienceMs) {
          this.#firstAt = undefined;
          const batch = builder.take();
          if (builder.queue.bytes === 0 || this.paused) this.#host.wake();
          return batch;
        }
        await this.#signal.wait(Math.max(1, patienceMs - waitedMs));
        continue;
      }
      if (result === 'poison') throw builder.poison ?? new SinkFatalError('a record stopped the stage');
      await this.#stand();
    }
    return undefined;
  }

  async #stand(): Promise<void> {
    this.#idle = true;
    this.#host.wake();
    await this.#signal.wait();
    this.#idle = false;
  }

  // ---------------------------------------------------------------------------------------------------------------- writing

  async #writeUntilDone(batch: SinkBatch<unknown, unknown>): Promise<void> {
    const { counters, commitsFirst } = this.#host;
    if (commitsFirst && !(await this.#host.commitNow(this, batch.nextOffset))) {
      this.close();
      return;
    }
    while (!this.closed) {
      try {
        if (await this.#write(batch)) return;
        break;
      } catch (error) {
        if (error instanceof SinkRetriableError) {
          counters.retries++;
          await this.#backOff(error);
        } else if (error instanceof SinkFencedError) {
          counters.fenced++;
          await this.#fenced(error);
        } else {
          throw error;
        }
      }
      // Whether a COMMIT without an answer took effect, and whether somebody else was here: the position tells.
      const position = await this.#claim(batch.from);
      if (position === undefined) break;
      if (position === batch.from) continue;
      if (position === batch.nextOffset) {
        this.#advance(position);
        return;
      }
      this.#moveTo(position);
      return;
    }
    if (commitsFirst && batch.records.length > 0) {
      const { topic, partition } = this;
      this.#host.log.warn(
        { topic, partition, records: batch.records.length },
        'records are lost: their offset was committed, as at-most-once has it',
      );
    }
  }

  /** False: closed before its turn came. */
  async #write(batch: SinkBatch<unknown, unknown>): Promise<boolean> {
    const { writer, slots, counters } = this.#host;
    const outcome = await slots.run(async () => (this.closed ? undefined : await writer.write(batch)));
    if (outcome === undefined) return false;
    counters.batches++;
    counters.applied += outcome.applied;
    counters.duplicates += outcome.duplicates;
    counters.deadLettered += outcome.deadLettered;
    this.#advance(batch.nextOffset);
    return true;
  }

  /** Where to begin; undefined: closed. As patient as a write. */
  async #claim(start: bigint): Promise<bigint | undefined> {
    const { writer, slots, counters } = this.#host;
    while (!this.closed) {
      try {
        return await slots.run(async () => (this.closed ? undefined : await writer.claim(this, start)));
      } catch (error) {
        if (!(error instanceof SinkRetriableError)) throw error;
        counters.retries++;
        await this.#backOff(error);
      }
    }
    return undefined;
  }

  /**
   * Another owner has claimed the partition. Before it is claimed back, the group must say that it is ours: else a process that was stopped for
   * a while would take it from its successor.
   */
  async #fenced(error: SinkFencedError): Promise<void> {
    const { log } = this.#host;
    this.#fencedInARow++;
    log.warn({ topic: this.topic, partition: this.partition, error: error.message }, 'another owner of the partition was here');
    if (this.#fencedInARow > MAX_FENCED_IN_A_ROW) {
      throw new SinkFatalError(
        `${topicPartitionKey(this.topic, this.partition)} was claimed by another owner ${this.#fencedInARow} times in a row, and the group says that it belongs here: ` +
          `do two applications with the same id use the same tables, perhaps on two Kafka clusters? Give each its own application id or schema`,
        { cause: error },
      );
    }
    await this.#sleep(this.#delay(this.#fencedInARow));
    if (this.closed) return;
    if (!(await this.#host.commitNow(this, this.applied ?? 0n))) this.close();
  }

  async #backOff(error: SinkRetriableError): Promise<void> {
    if (this.closed) return;
    this.#failures++;
    this.#host.health.failed(this, error);
    await this.#sleep(this.#delay(this.#failures));
  }

  /** Doubles up to the bound, with jitter over its upper half. */
  #delay(attempt: number): number {
    const { tuning, random } = this.#host;
    const full = Math.min(tuning.retryDelayMs * 2 ** Math.min(attempt - 1, 20), tuning.maxRetryDelayMs);
    return full * (0.5 + random() / 2);
  }

  async #sleep(ms: number): Promise<void> {
    try {
      await this.#host.clock.sleep(ms, this.#end.signal);
    } catch {
      // Closed.
    }
  }

  #advance(position: bigint): void {
    this.applied = position;
    this.#succeeded();
    this.#fencedInARow = 0;
  }

  #succeeded(): void {
    this.#failures = 0;
    this.#host.health.succeeded(this);
  }

  /** Goes on at a position that is not where the records in hand begin: the consumer has to be moved. */
  #moveTo(position: bigint): void {
    this.applied = position;
    this.startAt = position;
    this.#succeeded();
    this.#firstAt = undefined;
    this.#host.wake();
  }
}
