/** Reproducible randomness (mulberry32): the same seed kills at the same moments of a run and makes the same transfers. */
export class SeededRandom {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** Uniform in [0, 1). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  }

  /** A whole number from 0 to `below - 1`. */
  integer(below: number): number {
    return Math.floor(this.next() * below);
  }

  /** A number between the two. */
  between(low: number, high: number): number {
    return low + this.next() * (high - low);
  }
}
