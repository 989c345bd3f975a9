import { FatalError } from '../../../model/errors.ts';
import { NO_HEADERS, type Header, type Headers } from '../../../model/headers.ts';
import type { ConsumedRecord } from '../../../model/record.ts';
import { topicPartitionKey } from '../../../model/topic-partition.ts';
import type { RecordCursor } from '../../port.ts';
import { codecOf, decompress } from './compression.ts';
import { BATCH_HEADER_BYTES, compressionBits, hasLogAppendTime, type RecordBatchHeader } from './record-batch-header.ts';

/** What the records of one batch share. */
interface BatchFrame {
  readonly topic: string;
  readonly partition: number;
  /** Of the records, decompressed. */
  readonly buffer: Buffer;
  readonly baseOffset: bigint;
  readonly baseTimestamp: number;
}

const NO_FRAME: BatchFrame = { topic: '', partition: -1, buffer: Buffer.alloc(0), baseOffset: 0n, baseTimestamp: 0 };

/**
 * Decodes the records of a partition's batches one at a time. Everything that every record needs is read at once; slices, the offset and
 * the headers are made when they are asked for. Every number is checked against the end of its record, so bytes that are corrupt although
 * their checksum is right end in a FatalError, never in an endless loop or in bytes of another record.
 */
export class RecordBatchDecoder implements RecordCursor {
  readonly #topic: string;
  readonly #partition: number;
  readonly #buffer: Buffer;
  /** Intact, in offset order, without control batches. */
  readonly #batches: readonly RecordBatchHeader[];
  readonly #from: bigint;
  #nextBatch = 0;
  #frame = NO_FRAME;
  #bytes: Buffer = NO_FRAME.buffer;
  #position = 0;
  #end = 0;
  #left = 0;
  #lowestDelta = 0;
  #highestDelta = 0;
  #appendTime = false;

  /** Records below `from` are passed over: a batch always comes whole, also when the fetch began in the middle of it. */
  constructor(topic: string, partition: number, buffer: Buffer, batches: readonly RecordBatchHeader[], from: bigint) {
    this.#topic = topic;
    this.#partition = partition;
    this.#buffer = buffer;
    this.#batches = batches;
    this.#from = from;
  }

  next(): ConsumedRecord | undefined {
    for (;;) {
      if (this.#left === 0) {
        if (this.#position !== this.#end) throw this.#corrupt(`${this.#end - this.#position} bytes are left after its last record`);
        if (!this.#enterNextBatch()) return undefined;
        continue;
      }
      this.#left--;
      const record = this.#decode();
      if (record !== undefined) return record;
    }
  }

  #decode(): FetchedRecord | undefined {
    const bytes = this.#bytes;
    const length = this.#varint();
    const end = this.#position + length;
    // The shortest record: attributes, two deltas, two lengths and the number of headers.
    if (length < 6 || end > this.#end) throw this.#corrupt(`a record of ${length} bytes at byte ${this.#position} of ${this.#end}`);
    this.#position++;
    let timestampDelta = bytes[this.#position]!;
    if (timestampDelta < 0x80) {
      timestampDelta = (timestampDelta >>> 1) ^ -(timestampDelta & 1);
      this.#position++;
    } else timestampDelta = this.#varlong();
    const offsetDelta = this.#varint();
    if (offsetDelta < 0 || offsetDelta > this.#highestDelta) throw this.#corrupt(`a record with the offset delta ${offsetDelta}`);
    const keyLength = this.#varint();
    const keyStart = this.#position;
    if (keyLength > 0) this.#position += keyLength;
    if (keyLength < -1 || this.#position >= end) throw this.#corrupt(`a key of ${keyLength} bytes at byte ${keyStart} of ${end}`);
    const valueLength = this.#varint();
    const valueStart = this.#position;
    const headersStart = valueLength > 0 ? valueStart + valueLength : valueStart;
    if (valueLength < -1 || headersStart >= end) throw this.#corrupt(`a value of ${valueLength} bytes at byte ${valueStart} of ${end}`);
    if (bytes[headersStart] === 0 && headersStart + 1 !== end) throw this.#corrupt(`bytes are left after the record at ${valueStart}`);
    this.#position = end;
    if (offsetDelta < this.#lowestDelta) return undefined;
    return new FetchedRecord(
      this.#frame,
      offsetDelta,
      this.#appendTime ? 0 : timestampDelta,
      keyStart,
      keyLength,
      valueStart,
      valueLength,
      headersStart,
      end,
    );
  }

  #enterNextBatch(): boolean {
    const header = this.#batches[this.#nextBatch];
    if (header === undefined) return false;
    this.#nextBatch++;
    const start = header.start + BATCH_HEADER_BYTES;
    const codec = codecOf(compressionBits(header));
    const appendTime = hasLogAppendTime(header);
    const buffer = codec === 'none' ? this.#buffer : this.#decompress(header, codec);
    this.#frame = {
      topic: this.#topic,
      partition: this.#partition,
      buffer,
      baseOffset: header.baseOffset,
      baseTimestamp: appendTime ? header.maxTimestamp : header.baseTimestamp,
    };
    this.#bytes = buffer;
    this.#position = codec === 'none' ? start : 0;
    this.#end = codec === 'none' ? header.end : buffer.length;
    this.#left = header.recordCount;
    this.#appendTime = appendTime;
    this.#highestDelta = Number(header.lastOffset - header.baseOffset);
    this.#lowestDelta = this.#from > header.baseOffset ? Number(this.#from - header.baseOffset) : 0;
    if (this.#left < 0) throw this.#corrupt(`${this.#left} records`);
    return true;
  }

  #decompress(header: RecordBatchHeader, codec: ReturnType<typeof codecOf>): Buffer {
    // Nothing to decompress in a batch that compaction has emptied.
    if (header.recordCount === 0) return NO_FRAME.buffer;
    try {
      return decompress(codec, this.#buffer.subarray(header.start + BATCH_HEADER_BYTES, header.end));
    } catch (error) {
      throw new FatalError(
        `${topicPartitionKey(this.#topic, this.#partition)}: the batch at offset ${header.baseOffset} cannot be read: ${String(error)}`,
        { cause: error },
      );
    }
  }

  /** Signed (zigzag), at most 32 bits. */
  #varint(): number {
    const bytes = this.#bytes;
    let position = this.#position;
    let byte = bytes[position++]!;
    let value = byte & 0x7f;
    for (let shift = 7; byte >= 0x80; shift += 7) {
      if (shift > 28) throw this.#corrupt(`a variable-length number of more than 32 bits at byte ${this.#position}`);
      byte = bytes[position++]!;
      value |= (byte & 0x7f) << shift;
    }
    if (position > this.#end) throw this.#corrupt(`a variable-length number at byte ${this.#position}, after the end`);
    this.#position = position;
    return (value >>> 1) ^ -(value & 1);
  }

  /** Signed (zigzag), at most 64 bits. */
  #varlong(): number {
    const bytes = this.#bytes;
    let position = this.#position;
    let low = 0;
    let shift = 0;
    for (; shift < 28; shift += 7) {
      const byte = bytes[position++]!;
      low |= (byte & 0x7f) << shift;
      if (!(byte >= 0x80)) {
        if (position > this.#end) throw this.#corrupt(`a variable-length number at byte ${this.#position}, after the end`);
        this.#position = position;
        return (low >>> 1) ^ -(low & 1);
      }
    }
    // A record more than 37 hours from the first of its batch: rare enough for big integers.
    let value = BigInt(low);
    for (; ; shift += 7) {
      if (shift > 63 || position >= this.#end)
        throw this.#corrupt(`a variable-length number of more than 64 bits at byte ${this.#position}`);
      const byte = bytes[position++]!;
      value |= BigInt(byte & 0x7f) << BigInt(shift);
      if (byte < 0x80) break;
    }
    this.#position = position;
    value = BigInt.asUintN(64, value);
    return Number((value >> 1n) ^ -(value & 1n));
  }

  #corrupt(what: string): FatalError {
    return corruptBatch(this.#topic, this.#partition, this.#frame.baseOffset, what);
  }
}

function corruptBatch(topic: string, partition: number, baseOffset: bigint, what: string): FatalError {
  return new FatalError(
    `${topicPartitionKey(topic, partition)}: the batch at offset ${baseOffset} is corrupt although its checksum is right: ${what}. ` +
      'Whoever produced it wrote bytes that are no records; to go on, start behind this batch.',
  );
}

class FetchedRecord implements ConsumedRecord {
  readonly #frame: BatchFrame;
  readonly #offsetDelta: number;
  readonly #timestampDelta: number;
  readonly #keyStart: number;
  readonly #keyLength: number;
  readonly #valueStart: number;
  readonly #valueLength: number;
  readonly #headersStart: number;
  readonly #end: number;

  constructor(
    frame: BatchFrame,
    offsetDelta: number,
    timestampDelta: number,
    keyStart: number,
    keyLength: number,
    valueStart: number,
    valueLength: number,
    headersStart: number,
    end: number,
  ) {
    this.#frame = frame;
    this.#offsetDelta = offsetDelta;
    this.#timestampDelta = timestampDelta;
    this.#keyStart = keyStart;
    this.#keyLength = keyLength;
    this.#valueStart = valueStart;
    this.#valueLength = valueLength;
    this.#headersStart = headersStart;
    this.#end = end;
  }

  get topic(): string {
    return this.#frame.topic;
  }

  get partition(): number {
    return this.#frame.partition;
  }

  get offset(): bigint {
    return this.#frame.baseOffset + BigInt(this.#offsetDelta);
  }

  get timestamp(): number {
    return this.#frame.baseTimestamp + this.#timestampDelta;
  }

  get key(): Buffer | null {
    return this.#keyLength < 0 ? null : this.#frame.buffer.subarray(this.#keyStart, this.#keyStart + this.#keyLength);
  }

  get value(): Buffer | null {
    return this.#valueLength < 0 ? null : this.#frame.buffer.subarray(this.#valueStart, this.#valueStart + this.#valueLength);
  }

  keyText(): string | null {
    return this.#keyLength < 0 ? null : this.#frame.buffer.toString('utf8', this.#keyStart, this.#keyStart + this.#keyLength);
  }

  valueText(): string | null {
    return this.#valueLength < 0 ? null : this.#frame.buffer.toString('utf8', this.#valueStart, this.#valueStart + this.#valueLength);
  }

  get headers(): Headers {
    return this.#frame.buffer[this.#headersStart] === 0 ? NO_HEADERS : this.#readHeaders();
  }

  #readHeaders(): Headers {
    const { buffer } = this.#frame;
    let position = this.#headersStart;
    const varint = (): number => {
      let value = 0;
      for (let shift = 0; shift <= 28 && position < this.#end; shift += 7) {
        const byte = buffer[position++]!;
        value |= (byte & 0x7f) << shift;
        if (byte < 0x80) return (value >>> 1) ^ -(value & 1);
      }
      throw this.#corrupt(`a malformed number among the headers of offset ${this.offset}`);
    };
    const slice = (length: number): Buffer => {
      const start = position;
      position += length;
      if (length < 0 || position > this.#end) throw this.#corrupt(`${length} bytes among the headers of offset ${this.offset}`);
      return buffer.subarray(start, position);
    };
    const count = varint();
    // Each takes two bytes at least.
    if (count < 0 || count * 2 > this.#end - position) throw this.#corrupt(`${count} headers at offset ${this.offset}`);
    const headers: Header[] = [];
    for (let i = 0; i < count; i++) {
      const key = slice(varint()).toString('utf8');
      const length = varint();
      headers.push({ key, value: length === -1 ? null : slice(length) });
    }
    if (position !== this.#end) throw this.#corrupt(`bytes are left after the headers of offset ${this.offset}`);
    return headers;
  }

  #corrupt(what: string): FatalError {
    return corruptBatch(this.#frame.topic, this.#frame.partition, this.#frame.baseOffset, what);
  }
}
