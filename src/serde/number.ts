import { DeserialisationError, SerialisationError } from '../model/errors.ts';
import type { Serde } from './serde.ts';
import { refuseNull } from './text.ts';

/**
 * A JavaScript number as 8 bytes, IEEE 754 double, big endian: the format of Kafka's `DoubleSerializer`, since a JavaScript number is a Java
 * double. (For decimal text use `json<number>()`.) The same as `float64()`.
 *
 * ```ts run
 * builder.stream('temperatures', { key: string(), value: number() }).filter((celsius) => celsius > 30);
 * ```
 */
export function number(): Serde<number> {
  return FLOAT64;
}

/**
 * 8 bytes, IEEE 754 double, big endian, as Kafka's `DoubleSerializer`. Keeps NaN and infinities.
 *
 * ```ts run
 * builder.stream('temperatures', { key: string(), value: float64() });
 * ```
 */
export function float64(): Serde<number> {
  return FLOAT64;
}

/**
 * A whole number in 4 bytes, two's complement, big endian, as Kafka's `IntegerSerializer`. Fractions and numbers out of range are errors.
 *
 * ```ts run
 * builder.stream('shares', { key: string(), value: int32() });
 * ```
 */
export function int32(): Serde<number> {
  return INT32;
}

/**
 * A bigint in 8 bytes, two's complement, big endian, as Kafka's `LongSerializer` (which is also what Kafka Streams' `count` writes).
 *
 * ```ts run
 * builder.stream('counts', { key: string(), value: int64() }).filter((count) => count > 10n);
 * ```
 */
export function int64(): Serde<bigint> {
  return INT64;
}

const FLOAT64: Serde<number> = Object.freeze({
  name: 'float64',
  serialise(value: number) {
    if (typeof value !== 'number') throw new SerialisationError(`a number is needed, but got ${described(value)}`);
    const bytes = Buffer.allocUnsafe(8);
    bytes.writeDoubleBE(value, 0);
    return bytes;
  },
  deserialise(payload: Buffer | null) {
    requireLength(payload, 8, 'float64');
    return payload.readDoubleBE(0);
  },
});

const INT32: Serde<number> = Object.freeze({
  name: 'int32',
  serialise(value: number) {
    if (typeof value !== 'number' || (value | 0) !== value)
      throw new SerialisationError(`a whole number of 32 bits is needed, but got ${described(value)}`);
    const bytes = Buffer.allocUnsafe(4);
    bytes.writeInt32BE(value, 0);
    return bytes;
  },
  deserialise(payload: Buffer | null) {
    requireLength(payload, 4, 'int32');
    return payload.readInt32BE(0);
  },
});

const INT64: Serde<bigint> = Object.freeze({
  name: 'int64',
  serialise(value: bigint) {
    if (typeof value !== 'bigint' || BigInt.asIntN(64, value) !== value) {
      throw new SerialisationError(`a bigint of 64 bits is needed, but got ${described(value)}`);
    }
    const bytes = Buffer.allocUnsafe(8);
    bytes.writeBigInt64BE(value, 0);
    return bytes;
  },
  deserialise(payload: Buffer | null) {
    requireLength(payload, 8, 'int64');
    return payload.readBigInt64BE(0);
  },
});

function requireLength(payload: Buffer | null, length: number, serde: string): asserts payload is Buffer {
  refuseNull(payload, serde);
  if (payload.length !== length) throw new DeserialisationError(`${serde} has ${length} bytes, but there are ${payload.length}`);
}

function described(value: unknown): string {
  return typeof value === 'number' || typeof value === 'bigint' ? `the ${typeof value} ${value}` : value === null ? 'null' : typeof value;
}
