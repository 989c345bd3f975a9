import type { Headers } from './headers.ts';

/**
 * Bytes of a key or a value. A string stands for its UTF-8 encoding, which lets the record batch encoder write it straight
 * into its buffer; null is Kafka's null (a tombstone, or a record without a key).
 */
export type Payload = Uint8Array | string | null;

/** Where a record came from and what travels beside its key and value. Handed to every step; valid after the step too. */
export interface RecordContext {
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
  /** Epoch milliseconds. */
  readonly timestamp: number;
  readonly headers: Headers;
}

/**
 * A record as it was read. `key` and `value` are slices of the fetch response: they stay valid, but keeping one keeps the
 * whole response in memory, so copy what you store.
 */
export interface ConsumedRecord extends RecordContext {
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  /** `key` read as UTF-8, without a slice being made for it. What is no UTF-8 becomes U+FFFD. */
  keyText(): string | null;
  /** `value` read as UTF-8, in the same way. */
  valueText(): string | null;
}
