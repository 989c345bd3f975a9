/** Delays that double from `firstMs` to `longestMs`. Starts anew after `reset`. */
export class BackOff {
  readonly #firstMs: number;
  readonly #longestMs: number;
  #nextMs: number;

  constructor(firstMs: number, longestMs: number) {
    this.#firstMs = firstMs;
    this.#longestMs = longestMs;
    this.#nextMs = firstMs;
  }

  next(): number {
    const delayMs = this.#nextMs;
    this.#nextMs = Math.min(delayMs * 2, this.#longestMs);
    return delayMs;
  }

  reset(): void {
    this.#nextMs = this.#firstMs;
  }
}

/** A transaction before this one is still being completed, which takes the broker a few milliseconds. */
export function concurrentTransactionsBackOff(): BackOff {
  return new BackOff(1, 20);
}

/** A leader or a coordinator is moving, loading or away. */
export function movingBackOff(): BackOff {
  return new BackOff(20, 1_000);
}
