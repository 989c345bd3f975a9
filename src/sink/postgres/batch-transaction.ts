import { SinkFatalError } from '../../model/errors.ts';
import type { FailPointName, FailPoints } from '../../model/fail-point.ts';
import { topicPartitionKey } from '../../model/topic-partition.ts';
import type { SinkBatch, SinkOutcome, SinkRecord } from '../port.ts';
import type { NulPolicy } from './column-value.ts';
import { deadLetterOf, deadLetterOfRefusal, type DeadLetters } from './dead-letters.ts';
import type { Effect } from './effect.ts';
import type { Fences } from './fences.ts';
import { inTransaction, type SinkTransaction } from './function-effect.ts';
import { applyIsolated } from './isolation.ts';
import { KeyGroups } from './key-groups.ts';
import type { ProcessedMessages } from './processed-messages.ts';
import type { Refusal } from './refusal.ts';
import type { Session } from './session.ts';
import type { Classify } from './sqlstate.ts';

/** A record whose effect was applied before, with what was kept of it. */
export interface DuplicateRecord<K, V> {
  readonly record: SinkRecord<K, V>;
  /** What the effect function returned then; null if it returned nothing. */
  readonly result: unknown;
}

export type OnDuplicates<K, V> = (tx: SinkTransaction, duplicates: readonly DuplicateRecord<K, V>[]) => Promise<void> | void;

export interface BatchTransactionParts<K, V> {
  /** Absent in modes without a fence. */
  readonly fences: Fences | undefined;
  /** Absent in modes without keys. */
  readonly processed: ProcessedMessages | undefined;
  /** Absent: a refused record is fatal. */
  readonly deadLetters: DeadLetters | undefined;
  readonly effect: Effect<K, V>;
  readonly onDuplicates: OnDuplicates<K, V> | undefined;
  readonly nul: NulPolicy;
  readonly classify: Classify;
  readonly failPoints: FailPoints | undefined;
}

/** How far one transaction came, for whoever has to judge its error. */
export interface Progress {
  commitSent: boolean;
}

/**
 * - `whole`: in as few round trips as possible, on the assumption that no row is at fault.
 * - `isolated`: part by part with savepoints, after `whole` has shown that one is.
 */
export type Approach = 'whole' | 'isolated';

/** Thrown by `whole` where a row, or two that meet, made it fail: nothing is applied, do it `isolated`. */
export class RowsAtFault extends Error {}

/** One batch in one transaction: fence, keys, effects, dead letters, COMMIT. */
export class BatchTransaction<K, V> {
  readonly #parts: BatchTransactionParts<K, V>;

  constructor(parts: BatchTransactionParts<K, V>) {
    this.#parts = parts;
  }

  /** Leaves the transaction open when it throws. */
  async run(session: Session, batch: SinkBatch<K, V>, epoch: bigint, approach: Approach, progress: Progress): Promise<SinkOutcome> {
    const groups = this.#parts.processed === undefined ? undefined : new KeyGroups(batch.records);
    const fresh = await this.#open(session, batch, epoch, groups);
    await this.#failPoint('sink-after-keys');
    if (approach === 'isolated') return await this.#finishIsolated(session, batch, groups, fresh, progress);
    return await this.#finishWhole(session, batch, groups, fresh, progress);
  }

  /** BEGIN, fence and keys, sent without waiting in between. Their order is the order of the locks: the fence shuts out a second owner first. */
  async #open(
    session: Session,
    batch: SinkBatch<K, V>,
    epoch: bigint,
    groups: KeyGroups<K, V> | undefined,
  ): Promise<readonly SinkRecord<K, V>[]> {
    const { fences, processed, failPoints } = this.#parts;
    await this.#failPoint('sink-before-begin');
    const sequential = failPoints !== undefined;
    const begun = session.begin();
    if (sequential) await begun;
    const advanced = fences?.advance(session, batch, batch.from, batch.nextOffset, epoch) ?? Promise.resolve(true);
    if (sequential) {
      if (!(await advanced)) throw await fences!.fencedError(session, batch, batch.from, epoch);
      await this.#failPoint('sink-after-fence');
    }
    const inserted =
      groups === undefined || processed === undefined ? Promise.resolve(undefined) : processed.insert(session, groups.keys());
    const [beginning, fence, keys] = await Promise.allSettled([begun, advanced, inserted]);
    if (beginning.status === 'rejected') throw beginning.reason;
    if (fence.status === 'rejected') throw fence.reason;
    if (!fence.value) throw await fences!.fencedError(session, batch, batch.from, epoch);
    if (keys.status === 'rejected') throw keys.reason;
    return groups === undefined || keys.value === undefined ? batch.records : groups.first(keys.value);
  }

  async #finishWhole(
    session: Session,
    batch: SinkBatch<K, V>,
    groups: KeyGroups<K, V> | undefined,
    fresh: readonly SinkRecord<K, V>[],
    progress: Progress,
  ): Promise<SinkOutcome> {
    const { effect, failPoints, classify } = this.#parts;
    // Without rows there is nothing to run, such as where all are duplicates.
    const run = fresh.length === 0 ? { refused: [], done: Promise.resolve(undefined) } : effect.run(session, fresh);
    // What was refused before it was sent leaves the others as they are, but a record with the same key may have to take its place.
    const plain = run.refused.length === 0 && (batch.refused?.length ?? 0) === 0 && this.#parts.onDuplicates === undefined;
    if (plain && effect.pipelined && failPoints === undefined) {
      progress.commitSent = true;
      const [done, committed] = await Promise.allSettled([run.done, session.commit()]);
      if (done.status === 'rejected') throw rowsAtFault(done.reason, classify);
      if (committed.status === 'rejected') throw rowsAtFault(committed.reason, classify);
      if (!committed.value) throw new SinkFatalError('Postgres sink: COMMIT was answered with ROLLBACK, although no statement had failed');
      return this.#outcome(batch, groups, fresh, []);
    }
    try {
      await this.#keepResults(session, groups, fresh, await run.done);
    } catch (error) {
      throw rowsAtFault(error, classify);
    }
    if (run.refused.some(({ record }) => groups !== undefined && groups.next(record) !== undefined)) throw new RowsAtFault();
    return await this.#finish(session, batch, groups, fresh, run.refused, progress);
  }

  async #finishIsolated(
    session: Session,
    batch: SinkBatch<K, V>,
    groups: KeyGroups<K, V> | undefined,
    fresh: readonly SinkRecord<K, V>[],
    progress: Progress,
  ): Promise<SinkOutcome> {
    const { effect, classify } = this.#parts;
    // A deferred constraint would fail at COMMIT, where nobody could say which row it was.
    await session.query('SET CONSTRAINTS ALL IMMEDIATE');
    const tried: SinkRecord<K, V>[] = [];
    const refused: Refusal<K, V>[] = [];
    let round = fresh;
    while (round.length > 0) {
      const refusedNow = await applyIsolated(session, effect, round, classify, async (records, results) => {
        await this.#keepResults(session, groups, records, results);
      });
      tried.push(...round);
      refused.push(...refusedNow);
      round = groups === undefined ? [] : refusedNow.map(({ record }) => groups.next(record)).filter((record) => record !== undefined);
    }
    return await this.#finish(session, batch, groups, tried, refused, progress);
  }

  async #finish(
    session: Session,
    batch: SinkBatch<K, V>,
    groups: KeyGroups<K, V> | undefined,
    tried: readonly SinkRecord<K, V>[],
    refused: readonly Refusal<K, V>[],
    progress: Progress,
  ): Promise<SinkOutcome> {
    await this.#bury(session, batch, groups, tried, refused);
    await this.#tellDuplicates(session, groups, tried);
    await this.#failPoint('sink-after-effects');
    await this.#failPoint('sink-before-commit');
    progress.commitSent = true;
    const committed = this.#commit(session);
    await Promise.all([committed, this.#failPoint('sink-commit-sent')]);
    if (!(await committed)) {
      throw new SinkFatalError('Postgres sink: COMMIT was answered with ROLLBACK: a statement of an effect function failed unnoticed');
    }
    return this.#outcome(batch, groups, tried, refused);
  }

  /** A deferred constraint fails as late as here. */
  async #commit(session: Session): Promise<boolean> {
    try {
      return await session.commit();
    } catch (error) {
      throw rowsAtFault(error, this.#parts.classify);
    }
  }

  /**
   * Writes the dead letters. A refused record counts as processed for the position, which moves on, but not for its idempotency key: the
   * key says 'the effect is applied', and it is not. So it is taken back, and the record can be sent again with the same key once the cause is
   * mended (until then each copy that the producer sends is one more dead letter).
   */
  async #bury(
    session: Session,
    batch: SinkBatch<K, V>,
    groups: KeyGroups<K, V> | undefined,
    tried: readonly SinkRecord<K, V>[],
    refused: readonly Refusal<K, V>[],
  ): Promise<void> {
    const letters = [...(batch.refused ?? []).map(deadLetterOf), ...refused.map(deadLetterOfRefusal)];
    const first = letters[0];
    if (first === undefined) return;
    if (this.#parts.deadLetters === undefined) {
      const where = `${topicPartitionKey(first.context.topic, first.context.partition)} at offset ${first.context.offset}`;
      throw new SinkFatalError(
        `Postgres sink: the record of ${where} is refused: ${first.message}. Mend the record, the mapping or the table; or set deadLetters to 'table' to set such records aside`,
      );
    }
    if (groups !== undefined && this.#parts.processed !== undefined && refused.length > 0) {
      const refusedRecords = new Set(refused.map(({ record }) => record));
      const appliedKeys = new Set(tried.filter((record) => !refusedRecords.has(record)).map((record) => groups.keyOf(record)));
      const unused = new Set(refused.map(({ record }) => groups.keyOf(record)).filter((key) => !appliedKeys.has(key)));
      if (unused.size > 0) await this.#parts.processed.delete(session, [...unused]);
    }
    await this.#parts.deadLetters.insert(session, letters);
  }

  async #tellDuplicates(session: Session, groups: KeyGroups<K, V> | undefined, tried: readonly SinkRecord<K, V>[]): Promise<void> {
    const { processed, onDuplicates } = this.#parts;
    if (onDuplicates === undefined || processed === undefined || groups === undefined) return;
    const records = groups.duplicates(new Set(tried));
    if (records.length === 0) return;
    const results = await processed.results(session, [...new Set(records.map((record) => groups.keyOf(record)))]);
    await inTransaction(session, async (tx) => {
      await onDuplicates(
        tx,
        records.map((record) => ({ record, result: results.get(groups.keyOf(record)) ?? null })),
      );
    });
  }

  async #keepResults(
    session: Session,
    groups: KeyGroups<K, V> | undefined,
    records: readonly SinkRecord<K, V>[],
    results: readonly unknown[] | undefined,
  ): Promise<void> {
    if (results === undefined || groups === undefined) return;
    await this.#parts.processed?.storeResults(
      session,
      records.map((record) => groups.keyOf(record)),
      results,
      this.#parts.nul,
    );
  }

  #outcome(
    batch: SinkBatch<K, V>,
    groups: KeyGroups<K, V> | undefined,
    tried: readonly SinkRecord<K, V>[],
    refused: readonly Refusal<K, V>[],
  ): SinkOutcome {
    return {
      applied: tried.length - refused.length,
      duplicates: groups === undefined ? 0 : batch.records.length - tried.length,
      deadLettered: refused.length + (batch.refused?.length ?? 0),
    };
  }

  async #failPoint(name: FailPointName): Promise<void> {
    await this.#parts.failPoints?.(name);
  }
}

function rowsAtFault(error: unknown, classify: Classify): unknown {
  const remedy = classify(error);
  return remedy === 'refuse' || remedy === 'split' ? new RowsAtFault('', { cause: error }) : error;
}
