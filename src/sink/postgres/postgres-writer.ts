import { SinkFatalError, SinkRetriableError } from '../../model/errors.ts';
import type { FailPoints } from '../../model/fail-point.ts';
import { topicPartitionKey, type TopicPartition } from '../../model/topic-partition.ts';
import type { SinkBatch, SinkLog, SinkMode, SinkOutcome, SinkWriter } from '../port.ts';
import { RowsAtFault, type Approach, type BatchTransaction, type Progress } from './batch-transaction.ts';
import type { Connections } from './connections.ts';
import type { Fences } from './fences.ts';
import { describeError, sqlstateOf, toSinkError, type Classify } from './sqlstate.ts';

export interface PostgresWriterParts<K, V> {
  readonly mode: SinkMode;
  readonly connections: Connections;
  readonly concurrency: number;
  /** Absent in modes without a fence. */
  readonly fences: Fences | undefined;
  readonly transaction: BatchTransaction<K, V>;
  readonly classify: Classify;
  readonly failPoints: FailPoints | undefined;
  readonly log: SinkLog;
}

const CLOSE_TIMEOUT_MS = 5_000;

/** An open Postgres sink. */
export class PostgresWriter<K, V> implements SinkWriter<K, V> {
  readonly concurrency: number;
  readonly #parts: PostgresWriterParts<K, V>;
  /** The epoch of each partition that was claimed. */
  readonly #epochs = new Map<string, bigint>();

  constructor(parts: PostgresWriterParts<K, V>) {
    this.#parts = parts;
    this.concurrency = parts.concurrency;
  }

  async claim(partition: TopicPartition, start: bigint): Promise<bigint> {
    const { fences, connections, classify } = this.#parts;
    if (fences === undefined) return start;
    const name = topicPartitionKey(partition.topic, partition.partition);
    try {
      const claim = await connections.transaction(async (session) => await fences.claim(session, partition, start));
      this.#epochs.set(name, claim.epoch);
      return claim.nextOffset;
    } catch (error) {
      throw toSinkError(error, `claiming ${name}`, classify);
    }
  }

  async write(batch: SinkBatch<K, V>): Promise<SinkOutcome> {
    const { fences, failPoints } = this.#parts;
    const empty = batch.records.length === 0 && (batch.refused?.length ?? 0) === 0;
    if (empty && fences === undefined) return { applied: 0, duplicates: 0, deadLettered: 0 };
    const epoch = this.#epochOf(batch);
    let outcome = await this.#attempt(batch, epoch, 'whole');
    if (outcome instanceof RowsAtFault) outcome = await this.#attempt(batch, epoch, 'isolated');
    if (outcome instanceof RowsAtFault) {
      const reason = describeError(outcome.cause);
      throw new SinkFatalError(`Postgres sink: no record of ${describe(batch)} can be told to be at fault for: ${reason}`, {
        cause: outcome.cause,
      });
    }
    await failPoints?.('sink-after-commit');
    return outcome;
  }

  async close(timeoutMs: number = CLOSE_TIMEOUT_MS): Promise<void> {
    await this.#parts.connections.close(timeoutMs);
  }

  async #attempt(batch: SinkBatch<K, V>, epoch: bigint, approach: Approach): Promise<SinkOutcome | RowsAtFault> {
    const { connections, transaction, mode, log, classify } = this.#parts;
    const progress: Progress = { commitSent: false };
    try {
      return await connections.use(async (session) => {
        try {
          return await transaction.run(session, batch, epoch, approach, progress);
        } catch (error) {
          await session.rollback();
          throw error;
        }
      });
    } catch (error) {
      if (error instanceof RowsAtFault) return error;
      const failure = toSinkError(error, `writing ${describe(batch)}`, classify);
      const unknown = failure instanceof SinkRetriableError && progress.commitSent && sqlstateOf(error) === undefined;
      if (!unknown || mode !== 'at-most-once') throw failure;
      // It may be applied, and at most once means not to try again.
      log.warn(
        { error: describeError(error), ...position(batch) },
        'the answer to COMMIT was lost: the batch is applied or lost, and is not repeated',
      );
      return { applied: 0, duplicates: 0, deadLettered: 0 };
    }
  }

  #epochOf(batch: SinkBatch<K, V>): bigint {
    if (this.#parts.fences === undefined) return 0n;
    const epoch = this.#epochs.get(topicPartitionKey(batch.topic, batch.partition));
    if (epoch === undefined) throw new SinkFatalError(`Postgres sink: ${describe(batch)} was written without a claim`);
    return epoch;
  }
}

function describe(batch: SinkBatch<unknown, unknown>): string {
  return `${topicPartitionKey(batch.topic, batch.partition)} from offset ${batch.from} to ${batch.nextOffset}`;
}

function position(batch: SinkBatch<unknown, unknown>): object {
  return { topic: batch.topic, partition: batch.partition, from: String(batch.from), nextOffset: String(batch.nextOffset) };
}
