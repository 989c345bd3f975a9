import type { Clock } from '../../src/model/clock.ts';

/** Time that stands still until it is told to go on. A sleep moves it at once, so that one who waits alone never blocks. */
export class ManualClock implements Clock {
  #nowMs: number;

  constructor(startMs = 1_700_000_000_000) {
    this.#nowMs = startMs;
  }

  now(): number {
    return this.#nowMs;
  }

  monotonic(): number {
    return this.#nowMs;
  }

  advance(ms: number): void {
    this.#nowMs += ms;
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    this.#nowMs += ms;
  }
}
