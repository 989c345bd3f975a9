import type { Clock } from '../model/clock.ts';
import type { Log } from '../ops/log.ts';

/** Tells when the target of a stage goes away and when it is back: one line per change, however many attempts and partitions it concerns. */
export class SinkHealth {
  readonly #clock: Clock;
  readonly #log: Log;
  /** Those whose last attempt failed. */
  readonly #failing = new Set<object>();
  #failingSince = 0;
  #attempts = 0;

  constructor(clock: Clock, log: Log) {
    this.#clock = clock;
    this.#log = log;
  }

  get failing(): boolean {
    return this.#failing.size > 0;
  }

  failed(part: object, error: Error): void {
    if (!this.failing) {
      this.#failingSince = this.#clock.monotonic();
      this.#attempts = 0;
      this.#log.warn({ reason: error.message }, 'the sink cannot be written to: the stage waits and tries again until it can');
    }
    this.#attempts++;
    this.#failing.add(part);
  }

  succeeded(part: object): void {
    if (!this.#failing.delete(part) || this.failing) return;
    const failedMs = Math.round(this.#clock.monotonic() - this.#failingSince);
    this.#log.info({ failedMs, attempts: this.#attempts }, 'the sink can be written to again');
  }

  /** It is somebody else's now. */
  forget(part: object): void {
    this.#failing.delete(part);
  }
}
