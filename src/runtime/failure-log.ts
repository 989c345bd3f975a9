import type { Log } from '../ops/log.ts';
import type { FailureCounters } from '../ops/metrics.ts';

const INTERVAL_MS = 10_000;

/** Tells of skipped and dead-lettered records in one line per 10 s, however many there are. */
export class FailureLog {
  readonly #log: Log;
  #loggedAt = -Infinity;
  #skipped = 0;
  #deadLettered = 0;

  constructor(log: Log) {
    this.#log = log;
  }

  /** `counters`: the totals of this application so far. */
  tell(counters: Iterable<FailureCounters>, nowMs: number): void {
    if (nowMs - this.#loggedAt < INTERVAL_MS) return;
    let skipped = 0;
    let deadLettered = 0;
    for (const topic of counters) {
      skipped += topic.skipped;
      deadLettered += topic.deadLettered;
    }
    if (skipped === this.#skipped && deadLettered === this.#deadLettered) return;
    this.#log.warn(
      { skipped: skipped - this.#skipped, deadLettered: deadLettered - this.#deadLettered },
      'records could not be processed and were skipped or sent to the dead letter topic',
    );
    this.#skipped = skipped;
    this.#deadLettered = deadLettered;
    this.#loggedAt = nowMs;
  }
}
