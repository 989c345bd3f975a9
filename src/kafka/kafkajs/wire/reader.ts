import { FatalError } from '../../../model/errors.ts';

/**
 * Reads the primitive types of Kafka's protocol from one buffer. Each method takes the name of the field that it reads: an answer that ends
 * too early or holds an impossible length throws a FatalError which names the api and the field. Slices share the memory of the answer.
 */
export class WireReader {
  readonly #buffer: Buffer;
  readonly #source: string;
  #position = 0;

  /** `source` names what is read, for messages: `Fetch v11 answer`. */
  constructor(buffer: Buffer, source: string) {
    this.#buffer = buffer;
    this.#source = source;
  }

  get position(): number {
    return this.#position;
  }

  get remaining(): number {
    return this.#buffer.length - this.#position;
  }

  int8(field = 'int8'): number {
    return this.#buffer.readInt8(this.#advance(1, field));
  }

  int16(field = 'int16'): number {
    return this.#buffer.readInt16BE(this.#advance(2, field));
  }

  int32(field = 'int32'): number {
    return this.#buffer.readInt32BE(this.#advance(4, field));
  }

  int64(field = 'int64'): bigint {
    return this.#buffer.readBigInt64BE(this.#advance(8, field));
  }

  boolean(field = 'boolean'): boolean {
    return this.int8(field) !== 0;
  }

  /** Unsigned, up to 32 bits. */
  uvarint(field = 'uvarint'): number {
    let value = 0;
    for (let shift = 0; shift <= 28; shift += 7) {
      const byte = this.#buffer[this.#advance(1, field)]!;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value >>> 0;
    }
    throw this.#corrupt(field, 'a variable-length number is longer than 32 bits');
  }

  /** Signed (zigzag), 32 bits. */
  varint(field = 'varint'): number {
    const value = this.uvarint(field);
    return (value >>> 1) ^ -(value & 1);
  }

  string(field = 'string'): string {
    return this.#notNull(this.nullableString(field), field);
  }

  nullableString(field = 'string'): string | null {
    return this.#text(this.int16(field), field);
  }

  compactString(field = 'string'): string {
    return this.#notNull(this.compactNullableString(field), field);
  }

  compactNullableString(field = 'string'): string | null {
    return this.#text(this.uvarint(field) - 1, field);
  }

  bytes(field = 'bytes'): Buffer {
    return this.#notNull(this.nullableBytes(field), field);
  }

  nullableBytes(field = 'bytes'): Buffer | null {
    return this.#slice(this.int32(field), field);
  }

  compactBytes(field = 'bytes'): Buffer {
    return this.#notNull(this.compactNullableBytes(field), field);
  }

  compactNullableBytes(field = 'bytes'): Buffer | null {
    return this.#slice(this.uvarint(field) - 1, field);
  }

  /** A null array reads as an empty one. */
  array<T>(read: (reader: this) => T, field = 'array'): T[] {
    return this.#items(this.int32(field), read, field);
  }

  /** A null array reads as an empty one. */
  compactArray<T>(read: (reader: this) => T, field = 'array'): T[] {
    return this.#items(this.uvarint(field) - 1, read, field);
  }

  /** Passes over the tagged fields (KIP-482) at the end of a structure of a flexible version. */
  skipTags(field = 'tagged fields'): void {
    for (let count = this.uvarint(field); count > 0; count--) {
      this.uvarint(field);
      this.raw(this.uvarint(field), field);
    }
  }

  raw(length: number, field = 'raw'): Buffer {
    const start = this.#advance(length, field);
    return this.#buffer.subarray(start, start + length);
  }

  #text(length: number, field: string): string | null {
    if (length === -1) return null;
    const start = this.#advance(length, field);
    return this.#buffer.toString('utf8', start, start + length);
  }

  #slice(length: number, field: string): Buffer | null {
    return length === -1 ? null : this.raw(length, field);
  }

  #items<T>(count: number, read: (reader: this) => T, field: string): T[] {
    // Every element takes at least one byte, so a larger count is no count.
    if (count > this.remaining) throw this.#corrupt(field, `an array of ${count} elements`);
    const items: T[] = [];
    for (let i = 0; i < count; i++) items.push(read(this));
    return items;
  }

  #notNull<T>(value: T | null, field: string): T {
    if (value === null) throw this.#corrupt(field, 'null, which is not allowed there');
    return value;
  }

  #advance(length: number, field: string): number {
    const start = this.#position;
    if (length < 0 || start + length > this.#buffer.length) throw this.#corrupt(field, `${length} bytes`);
    this.#position = start + length;
    return start;
  }

  #corrupt(field: string, what: string): FatalError {
    return new FatalError(
      `${this.#source} is truncated or corrupt: ${what} for '${field}' at byte ${this.#position} of ${this.#buffer.length}. ` +
        'The broker may not speak this version of the protocol; please report it with the version of the broker.',
    );
  }
}
