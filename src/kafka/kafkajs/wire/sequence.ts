const MAX_SEQUENCE = 0x7fffffff;

/** The sequence number `count` records after `sequence`: behind 2^31 - 1 comes 0, as `DefaultRecordBatch.incrementSequence` counts in Java. */
export function advanceSequence(sequence: number, count: number): number {
  return sequence > MAX_SEQUENCE - count ? count - (MAX_SEQUENCE - sequence) - 1 : sequence + count;
}
