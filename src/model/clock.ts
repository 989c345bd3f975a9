/** Time, as everything but the adapters sees it: injected, so that a simulation can own it. */
export interface Clock {
  /** Wall clock, epoch milliseconds. May jump. */
  now(): number;
  /** Monotonic milliseconds, for durations and deadlines. Never jumps. */
  monotonic(): number;
  /** Resolves after `ms` milliseconds; rejects with the signal's reason when it is aborted first. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** A source of randomness, uniform in [0, 1). Injected for the same reason. */
export type Random = () => number;
