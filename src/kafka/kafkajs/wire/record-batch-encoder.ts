import { crc32c } from '@node-rs/crc32';
import { FatalError } from '../../../model/errors.ts';
import type { Headers } from '../../../model/headers.ts';
import type { Payload } from '../../../model/record.ts';
import type { Compression } from '../../port.ts';
import { codecId, compress } from './compression.ts';
import { BATCH_HEADER_BYTES } from './record-batch-header.ts';

const BASE_OFFSET_AT = 0;
const LENGTH_AT = 8;
const LEADER_EPOCH_AT = 12;
const MAGIC_AT = 16;
const CRC_AT = 17;
const ATTRIBUTES_AT = 21;
const LAST_OFFSET_DELTA_AT = 23;
const BASE_TIMESTAMP_AT = 27;
const MAX_TIMESTAMP_AT = 35;
const PRODUCER_ID_AT = 43;
const PRODUCER_EPOCH_AT = 51;
const BASE_SEQUENCE_AT = 53;
const RECORD_COUNT_AT = 57;

const MAGIC = 2;
const TRANSACTIONAL = 0x10;
const NO_LEADER_EPOCH = -1;

/** The fields of a record but key, value and headers, and the lengths of these, each at its longest. */
const MAX_RECORD_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5 + 5;
/** UTF-16 code units take at most this many bytes in UTF-8 (a surrogate pair takes 4 for 2). */
const MAX_UTF8_BYTES = 3;
/** Above it a string is measured before room is made for it, below the worst case is cheaper than measuring. */
const MEASURED_LENGTH = 16 * 1024;
/** Below it a loop in JavaScript beats the call into native code. */
const SHORT = 24;

/** Who writes a batch, and where its first record stands in the producer's sequence on that partition. */
export interface BatchIdentity {
  /** -1 without idempotence; epoch and sequence are -1 then too. */
  readonly producerId: bigint;
  readonly producerEpoch: number;
  readonly baseSequence: number;
  readonly transactional: boolean;
}

/** Writes a RecordBatch v2 into a growing buffer, which `reset` keeps. `append` allocates nothing but growth. */
export class RecordBatchEncoder {
  #maxBytes: number;
  #buffer: Buffer;
  #position = BATCH_HEADER_BYTES;
  #count = 0;
  #baseTimestamp = 0;
  #maxTimestamp = 0;
  /** The last record was not ASCII, so the next one will hardly be. */
  #measure = false;

  /** `maxBytes` bounds the batch, header included, before compression. */
  constructor(maxBytes = 0x7fffffff, initialBytes = 16 * 1024) {
    this.#maxBytes = maxBytes;
    this.#buffer = Buffer.allocUnsafeSlow(Math.max(initialBytes, BATCH_HEADER_BYTES));
  }

  /** Records since the last `reset`. */
  get count(): number {
    return this.#count;
  }

  /** Bytes of the batch so far, header included, before compression. */
  get bytes(): number {
    return this.#position;
  }

  /** What the buffer holds in memory. */
  get capacity(): number {
    return this.#buffer.length;
  }

  /**
   * False, and nothing changed, when the batch would be larger than `maxBytes` with this record. A string stands for its UTF-8 encoding,
   * where a lone surrogate becomes U+FFFD. `timestamp` in epoch milliseconds; throws FatalError when that is no integer.
   */
  append(key: Payload, value: Payload, timestamp: number, headers: Headers): boolean {
    if (!Number.isSafeInteger(timestamp)) {
      throw new FatalError(`A record's timestamp must be whole epoch milliseconds, not ${timestamp}.`);
    }
    const headersBytes = headers.length === 0 ? 1 : sizeOfHeaders(headers);
    const needed = this.#position + MAX_RECORD_OVERHEAD + roomFor(key) + roomFor(value) + headersBytes;
    if (needed > this.#buffer.length) this.#grow(needed);

    // UTF-8 is as long as UTF-16 exactly when the text is ASCII. Most is, so that is tried first, which saves measuring it.
    let end = -1;
    if (!this.#measure) end = this.#write(key, units(key), value, units(value), timestamp, headers, headersBytes);
    if (end < 0) {
      const keyBytes = payloadBytes(key);
      const valueBytes = payloadBytes(value);
      end = this.#write(key, keyBytes, value, valueBytes, timestamp, headers, headersBytes);
      this.#measure = keyBytes !== units(key) || valueBytes !== units(value);
    }
    if (end > this.#maxBytes) return false;

    this.#position = end;
    if (this.#count === 0) this.#baseTimestamp = this.#maxTimestamp = timestamp;
    else if (timestamp > this.#maxTimestamp) this.#maxTimestamp = timestamp;
    this.#count++;
    return true;
  }

  /**
   * Completes the batch and gives its bytes, with base offset 0, which the broker overwrites. Uncompressed, they are a view that is valid until the
   * next `append` or `reset`. Records that compression would not make smaller stay uncompressed, so a batch never outgrows `maxBytes`.
   */
  seal(identity: BatchIdentity, compression: Compression = 'none'): Buffer {
    let batch = this.#buffer.subarray(0, this.#position);
    let codec = 0;
    if (compression !== 'none') {
      const compressed = compress(compression, batch.subarray(BATCH_HEADER_BYTES));
      if (BATCH_HEADER_BYTES + compressed.length < batch.length) {
        batch = Buffer.allocUnsafeSlow(BATCH_HEADER_BYTES + compressed.length);
        batch.set(compressed, BATCH_HEADER_BYTES);
        codec = codecId(compression);
      }
    }
    batch.writeBigInt64BE(0n, BASE_OFFSET_AT);
    batch.writeInt32BE(batch.length - LEADER_EPOCH_AT, LENGTH_AT);
    batch.writeInt32BE(NO_LEADER_EPOCH, LEADER_EPOCH_AT);
    batch[MAGIC_AT] = MAGIC;
    batch.writeInt16BE(codec | (identity.transactional ? TRANSACTIONAL : 0), ATTRIBUTES_AT);
    batch.writeInt32BE(this.#count - 1, LAST_OFFSET_DELTA_AT);
    batch.writeBigInt64BE(BigInt(this.#baseTimestamp), BASE_TIMESTAMP_AT);
    batch.writeBigInt64BE(BigInt(this.#maxTimestamp), MAX_TIMESTAMP_AT);
    batch.writeBigInt64BE(identity.producerId, PRODUCER_ID_AT);
    batch.writeInt16BE(identity.producerEpoch, PRODUCER_EPOCH_AT);
    batch.writeInt32BE(identity.baseSequence, BASE_SEQUENCE_AT);
    batch.writeInt32BE(this.#count, RECORD_COUNT_AT);
    batch.writeUInt32BE(crc32c(batch.subarray(ATTRIBUTES_AT)), CRC_AT);
    return batch;
  }

  /** Begins the next batch. */
  reset(maxBytes = this.#maxBytes): void {
    this.#maxBytes = maxBytes;
    this.#position = BATCH_HEADER_BYTES;
    this.#count = 0;
  }

  /** Writes one record behind the last and gives its end, or -1 when a string is not as long in UTF-8 as was said. */
  #write(
    key: Payload,
    keyBytes: number,
    value: Payload,
    valueBytes: number,
    timestamp: number,
    headers: Headers,
    headersBytes: number,
  ): number {
    const buffer = this.#buffer;
    const offsetDelta = this.#count;
    const timestampDelta = offsetDelta === 0 ? 0 : timestamp - this.#baseTimestamp;
    let length = 1 + sizeOfVarlong(timestampDelta) + sizeOfVarint(offsetDelta) + sizeOfVarint(keyBytes) + sizeOfVarint(valueBytes);
    if (keyBytes > 0) length += keyBytes;
    if (valueBytes > 0) length += valueBytes;
    length += headersBytes;

    let position = writeVarint(buffer, this.#position, length);
    buffer[position++] = 0; // attributes, unused in version 2
    position = writeVarlong(buffer, position, timestampDelta);
    position = writeVarint(buffer, position, offsetDelta);
    position = writeVarint(buffer, position, keyBytes);
    if (keyBytes > 0 && writePayload(buffer, position, key!) !== keyBytes) return -1;
    if (keyBytes > 0) position += keyBytes;
    position = writeVarint(buffer, position, valueBytes);
    if (valueBytes > 0 && writePayload(buffer, position, value!) !== valueBytes) return -1;
    if (valueBytes > 0) position += valueBytes;
    if (headers.length === 0) {
      buffer[position++] = 0;
      return position;
    }
    return writeHeaders(buffer, position, headers);
  }

  #grow(needed: number): void {
    const grown = Buffer.allocUnsafeSlow(Math.max(this.#buffer.length * 2, needed));
    this.#buffer.copy(grown, 0, 0, this.#position);
    this.#buffer = grown;
  }
}

/** The bytes that a record takes when it is the only one of its batch, as `append` would write it. */
export function soleRecordBytes(key: Payload, value: Payload, headers: Headers): number {
  const keyBytes = payloadBytes(key);
  const valueBytes = payloadBytes(value);
  const length =
    3 + // attributes, timestamp delta 0, offset delta 0
    sizeOfVarint(keyBytes) +
    Math.max(keyBytes, 0) +
    sizeOfVarint(valueBytes) +
    Math.max(valueBytes, 0) +
    sizeOfHeaders(headers);
  return sizeOfVarint(length) + length;
}

/** The length of a payload as it stands in a record: -1 for null. */
function payloadBytes(payload: Payload): number {
  return payload === null ? -1 : typeof payload === 'string' ? Buffer.byteLength(payload, 'utf8') : payload.length;
}

function units(payload: Payload): number {
  return payload === null ? -1 : payload.length;
}

function roomFor(payload: Payload): number {
  if (payload === null) return 0;
  if (typeof payload !== 'string') return payload.length;
  return payload.length < MEASURED_LENGTH ? payload.length * MAX_UTF8_BYTES : Buffer.byteLength(payload, 'utf8');
}

/** Gives the bytes that were written, or -1 for short text that is not ASCII. */
function writePayload(buffer: Buffer, start: number, payload: Uint8Array | string): number {
  const length = payload.length;
  if (typeof payload !== 'string') {
    if (length < SHORT) for (let i = 0; i < length; i++) buffer[start + i] = payload[i]!;
    else buffer.set(payload, start);
    return length;
  }
  if (length < SHORT) {
    let i = 0;
    for (; i < length; i++) {
      const unit = payload.charCodeAt(i);
      if (unit > 0x7f) break;
      buffer[start + i] = unit;
    }
    if (i === length) return length;
  }
  return buffer.write(payload, start, 'utf8');
}

function sizeOfHeaders(headers: Headers): number {
  let bytes = sizeOfVarint(headers.length);
  for (const header of headers) {
    const keyBytes = Buffer.byteLength(header.key, 'utf8');
    bytes += sizeOfVarint(keyBytes) + keyBytes;
    const valueBytes = payloadBytes(header.value);
    bytes += sizeOfVarint(valueBytes) + Math.max(valueBytes, 0);
  }
  return bytes;
}

function writeHeaders(buffer: Buffer, start: number, headers: Headers): number {
  let position = writeVarint(buffer, start, headers.length);
  for (const header of headers) {
    position = writeVarint(buffer, position, Buffer.byteLength(header.key, 'utf8'));
    position += buffer.write(header.key, position, 'utf8');
    position = writeVarint(buffer, position, payloadBytes(header.value));
    if (header.value !== null) {
      buffer.set(header.value, position);
      position += header.value.length;
    }
  }
  return position;
}

function sizeOfVarint(value: number): number {
  const zigzag = ((value << 1) ^ (value >> 31)) >>> 0;
  return zigzag < 0x80 ? 1 : zigzag < 0x4000 ? 2 : zigzag < 0x200000 ? 3 : zigzag < 0x10000000 ? 4 : 5;
}

function writeVarint(buffer: Buffer, start: number, value: number): number {
  let position = start;
  let rest = ((value << 1) ^ (value >> 31)) >>> 0;
  while (rest > 0x7f) {
    buffer[position++] = (rest & 0x7f) | 0x80;
    rest >>>= 7;
  }
  buffer[position++] = rest;
  return position;
}

function sizeOfVarlong(value: number): number {
  if (value === (value | 0)) return sizeOfVarint(value);
  let bytes = 1;
  for (let rest = zigzag64(value); rest > 0x7fn; rest >>= 7n) bytes++;
  return bytes;
}

function writeVarlong(buffer: Buffer, start: number, value: number): number {
  if (value === (value | 0)) return writeVarint(buffer, start, value);
  let position = start;
  let rest = zigzag64(value);
  for (; rest > 0x7fn; rest >>= 7n) buffer[position++] = Number(rest & 0x7fn) | 0x80;
  buffer[position++] = Number(rest);
  return position;
}

/** Timestamps weeks apart in one batch are too rare to be fast. */
function zigzag64(value: number): bigint {
  const wide = BigInt(value);
  return BigInt.asUintN(64, (wide << 1n) ^ (wide >> 63n));
}
