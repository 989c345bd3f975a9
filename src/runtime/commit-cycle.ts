import type { Clock } from '../model/clock.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { Assignment } from './assignment.ts';
import type { CommitProtocol } from './commit.ts';

/** Positions that moved over control batches only are committed no more often than this. */
const IDLE_COMMIT_MS = 1_000;

export interface CommitCycleOptions {
  readonly protocol: CommitProtocol;
  readonly assignment: Assignment;
  readonly commitIntervalMs: number;
  readonly commitBytes: number;
  readonly clock: Clock;
  readonly metrics: Metrics;
}

/** What was done since the last commit, when the next one is due, and the commit itself. */
export class CommitCycle {
  readonly #options: CommitCycleOptions;
  #committedAt: number;
  #begunAt: number | undefined;
  #records = 0;
  #bytes = 0;
  #moved = false;

  constructor(options: CommitCycleOptions) {
    this.#options = options;
    this.#committedAt = options.clock.monotonic();
  }

  /** Records that were processed since the last commit. */
  get records(): number {
    return this.#records;
  }

  get dirty(): boolean {
    return this.#records > 0 || this.#moved;
  }

  /** Monotonic milliseconds. */
  get dueAt(): number {
    if (this.#bytes >= this.#options.commitBytes) return this.#committedAt;
    return this.#committedAt + (this.#records > 0 ? this.#options.commitIntervalMs : IDLE_COMMIT_MS);
  }

  /** Before a record is processed. */
  begin(): void {
    this.#begunAt ??= this.#options.clock.monotonic();
    this.#options.protocol.begin();
  }

  processed(records: number, bytes: number): void {
    this.#records += records;
    this.#bytes += bytes;
    this.#options.metrics.addProducedBytes(bytes);
  }

  /** A position may have moved without a record. */
  positionsMoved(): void {
    this.#moved = true;
  }

  /** Commits what was done, if anything. When it throws, `protocol.step` tells where, and everything is still to be committed or dropped. */
  async commit(): Promise<void> {
    const { protocol, assignment, clock, metrics } = this.#options;
    const startedAt = clock.monotonic();
    const sealed = protocol.commitsBeforeProcessing ? [] : assignment.seal();
    // No empty transactions: nothing was processed, and no position has moved.
    if (sealed.length > 0 || this.#records > 0) {
      await protocol.commit(sealed.map(({ position }) => position));
      assignment.committed(sealed);
      const endedAt = clock.monotonic();
      metrics.countCommit(endedAt - startedAt, endedAt - (this.#begunAt ?? startedAt));
      this.#committedAt = endedAt;
    } else {
      this.#committedAt = startedAt;
    }
    this.#moved = false;
    this.forget();
  }

  /** What was done since the last commit is dropped, or it is committed. Returns the number of its records. */
  forget(): number {
    const records = this.#records;
    this.#records = 0;
    this.#bytes = 0;
    this.#begunAt = undefined;
    return records;
  }
}
