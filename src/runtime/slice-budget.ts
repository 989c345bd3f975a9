import type { Clock } from '../model/clock.ts';
import type { Producer } from '../kafka/port.ts';

export interface SliceLimits {
  readonly records: number;
  readonly ms: number;
  readonly bytes: number;
}

/** The clock is looked at after so many records at most. */
const MAX_STRIDE = 16;
/** Above this time between two looks, the next one comes after one record. */
const SLOW_MS = 1;

/**
 * How much is processed between two turns of the event loop, so that sockets and heartbeats live: bounded in records, time and bytes of output.
 * The clock is not asked for each record, but at once where records turn out to be slow.
 */
export class SliceBudget {
  readonly #clock: Clock;
  readonly #producer: Producer;
  readonly #limits: SliceLimits;
  #stride = 1;
  /** Records taken in this slice. */
  taken = 0;
  #nextCheck = 0;
  #checkedAt = 0;
  #endsAt = 0;
  #fullAt = 0;

  constructor(clock: Clock, producer: Producer, limits: SliceLimits) {
    this.#clock = clock;
    this.#producer = producer;
    this.#limits = limits;
  }

  start(): void {
    this.taken = 0;
    this.#checkedAt = this.#clock.monotonic();
    this.#endsAt = this.#checkedAt + this.#limits.ms;
    this.#fullAt = this.#producer.bufferedBytes + this.#limits.bytes;
    this.#nextCheck = Math.min(this.#stride, this.#limits.records);
  }

  /** Whether one more record may be processed. */
  take(): boolean {
    if (this.taken >= this.#nextCheck && !this.#goOn()) return false;
    this.taken++;
    return true;
  }

  #goOn(): boolean {
    if (this.taken >= this.#limits.records) return false;
    const now = this.#clock.monotonic();
    this.#stride = now - this.#checkedAt > SLOW_MS ? 1 : Math.min(this.#stride * 2, MAX_STRIDE);
    this.#checkedAt = now;
    if (now >= this.#endsAt || this.#producer.bufferedBytes >= this.#fullAt) return false;
    this.#nextCheck = Math.min(this.taken + this.#stride, this.#limits.records);
    return true;
  }
}
