import type { AbortedTransaction } from './wire/fetch.ts';
import { isControl, isTransactional, type RecordBatchHeader } from './wire/record-batch-header.ts';

/**
 * Tells which batches of one Fetch answer belong to aborted transactions. An aborted transaction opens at its first offset and is closed by
 * the abort marker of its producer, of which the batch's control flag tells, never its bytes. The broker lists the transactions in the order
 * in which they ended, which is not the order of their first offsets, and one batch may open any number of them.
 */
export class ReadCommittedFilter {
  /** Still to be opened, the one with the highest first offset first. */
  readonly #pending: AbortedTransaction[];
  readonly #open = new Set<bigint>();

  constructor(aborted: readonly AbortedTransaction[]) {
    this.#pending = aborted.toSorted((a, b) => (a.firstOffset < b.firstOffset ? 1 : a.firstOffset > b.firstOffset ? -1 : 0));
  }

  /** To be asked for every batch of the answer, in offset order. `endsAborted`: a control batch that holds an abort marker. */
  isAborted(batch: RecordBatchHeader, endsAborted: boolean): boolean {
    for (let next = this.#pending.at(-1); next !== undefined && next.firstOffset <= batch.lastOffset; next = this.#pending.at(-1)) {
      this.#open.add(next.producerId);
      this.#pending.pop();
    }
    if (endsAborted) this.#open.delete(batch.producerId);
    return isTransactional(batch) && !isControl(batch) && this.#open.has(batch.producerId);
  }
}
