import type { Payload } from '../model/record.ts';

/** What a serde may look at besides the bytes. */
export interface SerdeContext {
  readonly topic: string;
  readonly part: 'key' | 'value';
}

/**
 * Turns values into bytes and back. Both directions are synchronous and throw on bad input; the engine adds topic, partition and offset.
 * A null payload reaches `deserialise` too: wrap a serde in `nullable` where nulls (tombstones, records without a key) are expected.
 */
export interface Serde<T> {
  /** For messages and `describe`: `json`, `string`... */
  readonly name: string;
  serialise(value: T, context: SerdeContext): Payload;
  deserialise(payload: Buffer | null, context: SerdeContext): T;
  /**
   * For a serde of UTF-8 text: what `deserialise` answers to these characters in UTF-8. The engine prefers it, since it then makes no Buffer for each
   * payload. Only called with text that was valid UTF-8. Default: `deserialise` is called.
   */
  deserialiseText?(text: string, context: SerdeContext): T;
}

/**
 * The half of a serde that writes. Its parameter is checked strictly: a serde for `Flight` is not accepted where `Flight | null` is to be written,
 * while one that writes anything is.
 */
export interface Serialiser<in T> {
  readonly name: string;
  readonly serialise: (value: T, context: SerdeContext) => Payload;
}
