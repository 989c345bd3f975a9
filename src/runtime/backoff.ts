import type { Random } from '../model/clock.ts';
import { FatalError } from '../model/errors.ts';

const FIRST_DELAY_MS = 10;
const MAX_DELAY_MS = 1_000;
/** Longer than any back-off and request deadline together: after such a pause, an error begins a new series. */
const QUIET_MS = 120_000;

/** Back-off with a bound: doubles from 10 ms to 1 s, with jitter, and gives up when a series of failures has lasted too long. */
export class Backoff {
  readonly #giveUpAfterMs: number;
  readonly #random: Random;
  #failures = 0;
  #firstAt = 0;
  #lastAt = 0;

  constructor(giveUpAfterMs: number, random: Random) {
    this.#giveUpAfterMs = giveUpAfterMs;
    this.#random = random;
  }

  /** Milliseconds to wait. Throws FatalError, with `error` as its cause, after the deadline. */
  failed(error: unknown, step: string, nowMs: number): number {
    if (this.#failures === 0 || nowMs - this.#lastAt > QUIET_MS) {
      this.#failures = 0;
      this.#firstAt = nowMs;
    }
    this.#lastAt = nowMs;
    const lasted = nowMs - this.#firstAt;
    if (lasted >= this.#giveUpAfterMs) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new FatalError(
        `gave up after ${Math.round(lasted / 1000)} s and ${this.#failures} failed attempts, the last one in step '${step}': ${reason}. ` +
          'See whether the brokers can be reached; retryTimeoutMs is how long is tried',
        { cause: error },
      );
    }
    const delay = Math.min(FIRST_DELAY_MS * 2 ** Math.min(this.#failures, 20), MAX_DELAY_MS);
    this.#failures++;
    return delay * (0.5 + this.#random() / 2);
  }

  succeeded(): void {
    this.#failures = 0;
  }
}

const FENCED_WINDOW_MS = 60_000;
const MAX_FENCED = 5;

/**
 * Being fenced once is a time-out or a restart. Again and again, it is another process with the same instance id: the two would take turns for
 * ever.
 */
export class FencingLimit {
  readonly #instanceId: string;
  readonly #transactionTimeoutMs: number;
  #times: number[] = [];
  #withoutCommit = 0;

  constructor(instanceId: string, transactionTimeoutMs: number) {
    this.#instanceId = instanceId;
    this.#transactionTimeoutMs = transactionTimeoutMs;
  }

  /** Throws FatalError where it is too often. */
  fenced(error: unknown, nowMs: number): void {
    this.#times = [...this.#times.filter((time) => nowMs - time < FENCED_WINDOW_MS), nowMs];
    this.#withoutCommit++;
    if (this.#times.length < MAX_FENCED && this.#withoutCommit < MAX_FENCED) return;
    throw new FatalError(
      `the producer was fenced ${Math.max(this.#times.length, this.#withoutCommit)} times in a row. Either another process uses the instance id ` +
        `'${this.#instanceId}' of this application too: give each process its own instanceId, or a state directory that only it uses. Or ` +
        `transactions take longer than transactionTimeoutMs (${this.#transactionTimeoutMs}): raise it, or make the steps faster`,
      { cause: error },
    );
  }

  committed(): void {
    this.#withoutCommit = 0;
  }
}
