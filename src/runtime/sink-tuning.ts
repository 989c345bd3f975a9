/** How a sink stage gathers, retries and commits. Durations in milliseconds. */
export interface SinkTuning {
  /** How long a batch that is not full waits for more when nothing else is there. Default 5. */
  readonly lingerMs: number;
  /** How often a position that moves without records (all filtered out, control batches) is written. Default 1000. */
  readonly positionIntervalMs: number;
  /**
   * How often offsets are committed to the group. Where the sink keeps the position, they are only a hint; at least once, they say what is
   * repeated after a crash. Default 1000.
   */
  readonly offsetCommitIntervalMs: number;
  /** The first wait after a failure; it doubles. Default 50. */
  readonly retryDelayMs: number;
  /** Default 10000. */
  readonly maxRetryDelayMs: number;
  /** The most bytes of source records in one batch. Default 4 MiB. */
  readonly maxBatchBytes: number;
  /** How long a rebalance waits for batches in hand. Default 5000. */
  readonly drainMs: number;
}

export const DEFAULT_SINK_TUNING: SinkTuning = Object.freeze({
  lingerMs: 5,
  positionIntervalMs: 1_000,
  offsetCommitIntervalMs: 1_000,
  retryDelayMs: 50,
  maxRetryDelayMs: 10_000,
  maxBatchBytes: 4 * 1024 * 1024,
  drainMs: 5_000,
});
