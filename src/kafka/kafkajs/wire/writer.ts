/** Writes the primitive types of Kafka's protocol into one growing buffer, which `reset` keeps for the next request. */
export class WireWriter {
  #buffer: Buffer;
  #position = 0;

  constructor(initialBytes = 1024) {
    this.#buffer = Buffer.allocUnsafe(initialBytes);
  }

  /** Bytes written since the last `reset`. */
  get position(): number {
    return this.#position;
  }

  reset(): void {
    this.#position = 0;
  }

  /** What was written, as a view that the next write after `reset` overwrites. */
  view(): Buffer {
    return this.#buffer.subarray(0, this.#position);
  }

  /** A copy of what was written. */
  toBuffer(): Buffer {
    return Buffer.from(this.view());
  }

  int8(value: number): this {
    this.#room(1);
    this.#position = this.#buffer.writeInt8(value, this.#position);
    return this;
  }

  int16(value: number): this {
    this.#room(2);
    this.#position = this.#buffer.writeInt16BE(value, this.#position);
    return this;
  }

  int32(value: number): this {
    this.#room(4);
    this.#position = this.#buffer.writeInt32BE(value, this.#position);
    return this;
  }

  int64(value: bigint): this {
    this.#room(8);
    this.#position = this.#buffer.writeBigInt64BE(value, this.#position);
    return this;
  }

  boolean(value: boolean): this {
    return this.int8(value ? 1 : 0);
  }

  /** Unsigned, up to 32 bits. */
  uvarint(value: number): this {
    this.#room(5);
    let rest = value >>> 0;
    while (rest > 0x7f) {
      this.#buffer[this.#position++] = (rest & 0x7f) | 0x80;
      rest >>>= 7;
    }
    this.#buffer[this.#position++] = rest;
    return this;
  }

  /** Signed (zigzag), 32 bits. */
  varint(value: number): this {
    return this.uvarint((value << 1) ^ (value >> 31));
  }

  string(value: string): this {
    const length = Buffer.byteLength(value, 'utf8');
    this.int16(length);
    return this.#text(value, length);
  }

  nullableString(value: string | null): this {
    return value === null ? this.int16(-1) : this.string(value);
  }

  compactString(value: string): this {
    const length = Buffer.byteLength(value, 'utf8');
    this.uvarint(length + 1);
    return this.#text(value, length);
  }

  compactNullableString(value: string | null): this {
    return value === null ? this.uvarint(0) : this.compactString(value);
  }

  bytes(value: Uint8Array | null): this {
    return value === null ? this.int32(-1) : this.int32(value.length).raw(value);
  }

  compactBytes(value: Uint8Array | null): this {
    return value === null ? this.uvarint(0) : this.uvarint(value.length + 1).raw(value);
  }

  array<T>(items: readonly T[] | null, write: (writer: this, item: T) => void): this {
    this.int32(items === null ? -1 : items.length);
    if (items !== null) for (const item of items) write(this, item);
    return this;
  }

  compactArray<T>(items: readonly T[] | null, write: (writer: this, item: T) => void): this {
    this.uvarint(items === null ? 0 : items.length + 1);
    if (items !== null) for (const item of items) write(this, item);
    return this;
  }

  /** An empty section of tagged fields (KIP-482), which ends each structure of a flexible version. */
  tags(): this {
    return this.uvarint(0);
  }

  raw(value: Uint8Array): this {
    this.#room(value.length);
    this.#buffer.set(value, this.#position);
    this.#position += value.length;
    return this;
  }

  /** Overwrites four bytes that were written before, for a length that is known only afterwards. */
  patchInt32(position: number, value: number): this {
    this.#buffer.writeInt32BE(value, position);
    return this;
  }

  #text(value: string, length: number): this {
    this.#room(length);
    this.#buffer.write(value, this.#position, length, 'utf8');
    this.#position += length;
    return this;
  }

  #room(bytes: number): void {
    const needed = this.#position + bytes;
    if (needed <= this.#buffer.length) return;
    const grown = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, needed));
    this.#buffer.copy(grown, 0, 0, this.#position);
    this.#buffer = grown;
  }
}
