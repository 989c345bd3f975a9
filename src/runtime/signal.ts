import type { Clock } from '../model/clock.ts';

/** Wakes whoever waits. A wake that nobody waits for ends the next wait at once, so that nothing is missed. */
export class Signal {
  readonly #clock: Clock;
  readonly #waiting = new Set<() => void>();
  #pending = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  wake(): void {
    if (this.#waiting.size === 0) this.#pending = true;
    for (const end of this.#waiting) end();
  }

  /** Until `wake`, but no longer than `ms`, if that is given. */
  async wait(ms?: number): Promise<void> {
    if (this.#pending) {
      this.#pending = false;
      return;
    }
    const abort = new AbortController();
    await new Promise<void>((resolve) => {
      const end = (): void => {
        this.#waiting.delete(end);
        resolve();
        abort.abort();
      };
      this.#waiting.add(end);
      if (ms !== undefined) this.#clock.sleep(ms, abort.signal).then(end, end);
    });
  }
}
