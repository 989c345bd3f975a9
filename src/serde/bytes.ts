import { SerialisationError } from '../model/errors.ts';
import type { Serde } from './serde.ts';
import { refuseNull } from './text.ts';

/**
 * Bytes as they are, as Kafka's `ByteArraySerializer`. What is read is a slice of the fetch response: it stays valid, but keeping it keeps the
 * whole response in memory, so copy what you store.
 *
 * ```ts run
 * builder.stream('images', { key: string(), value: bytes() }).filter((image) => image.length < 1_000_000);
 * ```
 */
export function bytes(): Serde<Buffer> {
  return BYTES;
}

const BYTES: Serde<Buffer> = Object.freeze({
  name: 'bytes',
  serialise(value: Uint8Array) {
    if (!(value instanceof Uint8Array))
      throw new SerialisationError(`a Buffer or Uint8Array is needed, but got ${value === null ? 'null' : typeof value}`);
    return value;
  },
  deserialise(payload: Buffer | null) {
    refuseNull(payload, 'bytes');
    return payload;
  },
});
