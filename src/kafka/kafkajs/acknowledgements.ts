import type { OutgoingBatch } from './outgoing-batch.ts';

/** What waits: for these batches to be acknowledged, or, with none given, for room in the buffers. */
interface Waiter {
  readonly batches: Set<OutgoingBatch> | undefined;
  resolve(): void;
  reject(error: Error): void;
}

/** The batches that no broker has acknowledged yet, and who waits for that. */
export class Acknowledgements {
  readonly #pending = new Set<OutgoingBatch>();
  readonly #waiters = new Set<Waiter>();

  expect(batch: OutgoingBatch): void {
    this.#pending.add(batch);
  }

  /** `room`: whether there is room in the buffers now. */
  received(batch: OutgoingBatch, room: boolean): void {
    this.#pending.delete(batch);
    for (const waiter of this.#waiters) {
      waiter.batches?.delete(batch);
      if (waiter.batches === undefined ? !room : waiter.batches.size > 0) continue;
      this.#waiters.delete(waiter);
      waiter.resolve();
    }
  }

  /** Whether a batch that has a place in the sequence is not acknowledged. */
  get unsure(): boolean {
    for (const batch of this.#pending) if (batch.sealed) return true;
    return false;
  }

  /** Resolves when every batch that is pending now is acknowledged. */
  all(): Promise<void> {
    return this.#pending.size === 0 ? Promise.resolve() : this.#wait(new Set(this.#pending));
  }

  room(): Promise<void> {
    return this.#wait(undefined);
  }

  reject(error: Error): void {
    for (const waiter of this.#waiters) waiter.reject(error);
    this.#waiters.clear();
  }

  /** Nothing is expected any more; who waits is told why. */
  drop(error: Error): void {
    this.#pending.clear();
    this.reject(error);
  }

  #wait(batches: Set<OutgoingBatch> | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiters.add({ batches, resolve, reject });
    });
  }
}
