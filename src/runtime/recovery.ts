import type { GroupConsumer } from '../kafka/port.ts';
import type { Clock, Random } from '../model/clock.ts';
import { FencedError } from '../model/errors.ts';
import type { Log } from '../ops/log.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { Assignment } from './assignment.ts';
import { Backoff, FencingLimit } from './backoff.ts';
import type { RecordCollector } from './collector.ts';
import type { CommitProtocol } from './commit.ts';
import type { CommitCycle } from './commit-cycle.ts';
import { errorCode, type Remedy, remedyFor, type WorkStep } from './remedy.ts';

export interface RecoveryOptions {
  readonly protocol: CommitProtocol;
  readonly assignment: Assignment;
  readonly collector: RecordCollector;
  readonly cycle: CommitCycle;
  readonly consumer: GroupConsumer;
  readonly instanceId: string;
  readonly transactionTimeoutMs: number;
  readonly retryTimeoutMs: number;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly metrics: Metrics;
}

/** Carries out the remedies, as far as they concern the producer and the positions. What has to be repeated is left to the worker's next steps. */
export class Recovery {
  /** Whether a producer epoch has to be taken before anything else. True at the beginning too. */
  needsInit = true;
  /** Monotonic milliseconds; before, nothing but polling is done. */
  resumeAt = 0;
  readonly #options: RecoveryOptions;
  readonly #pollBackoff: Backoff;
  readonly #workBackoff: Backoff;
  readonly #fencing: FencingLimit;

  constructor(options: RecoveryOptions) {
    this.#options = options;
    this.#pollBackoff = new Backoff(options.retryTimeoutMs, options.random);
    this.#workBackoff = new Backoff(options.retryTimeoutMs, options.random);
    this.#fencing = new FencingLimit(options.instanceId, options.transactionTimeoutMs);
  }

  polled(): void {
    this.#pollBackoff.succeeded();
  }

  committed(): void {
    this.#workBackoff.succeeded();
    this.#fencing.committed();
  }

  /** Does what can be done at once. Throws what stops the application, which may be the error itself. */
  async recover(error: unknown, step: WorkStep): Promise<Remedy> {
    const { clock, log, metrics, assignment } = this.#options;
    const remedy = remedyFor(error, step);
    const code = errorCode(error);
    metrics.countError(code);
    if (remedy === 'stop') throw error;
    log.warn({ step, remedy, code, reason: error instanceof Error ? error.message : String(error) }, 'step failed');
    const now = clock.monotonic();
    if (error instanceof FencedError) this.#fencing.fenced(error, now);
    const backoff = step === 'poll' ? this.#pollBackoff : this.#workBackoff;
    this.resumeAt = Math.max(this.resumeAt, now + backoff.failed(error, step, now));
    switch (remedy) {
      case 'try-again':
        break;
      case 'roll-back':
        await this.rollBack();
        break;
      case 'take-new-epoch':
        this.#takeNewEpoch();
        break;
      case 'rejoin':
        assignment.dropAll();
        await this.rollBack();
        break;
    }
    return remedy;
  }

  /** Drops what is not committed, and goes back to what is. At-most-once does not go back: what is gone is gone. */
  async rollBack(): Promise<void> {
    const { protocol, collector, assignment, consumer, metrics } = this.#options;
    collector.drop();
    this.#forget();
    if (!this.needsInit) {
      try {
        await protocol.abort();
      } catch (error) {
        // What is open is ended by the new epoch, and where to go on is read then.
        await this.recover(error, 'abort');
        return;
      }
      metrics.aborts++;
    }
    if (protocol.commitsBeforeProcessing) return;
    assignment.rollBack((input) => {
      input.paused = false;
      consumer.startFrom(input, input.committed);
    });
  }

  #takeNewEpoch(): void {
    const { protocol, collector, assignment } = this.#options;
    collector.drop();
    this.#forget();
    if (!protocol.commitsBeforeProcessing) assignment.verifyAll();
    this.needsInit = true;
  }

  #forget(): void {
    const { protocol, cycle, metrics } = this.#options;
    const records = cycle.forget();
    if (protocol.commitsBeforeProcessing) metrics.lost += records;
  }
}
