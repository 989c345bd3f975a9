import { crc32c } from '@node-rs/crc32';

/** The header of a RecordBatch (magic 2), from the base offset to the record count. */
export const BATCH_HEADER_BYTES = 61;
/** Base offset and length, which stand in front of what the length counts. */
export const BATCH_LENGTH_PREFIX_BYTES = 12;

const COMPRESSION_MASK = 0x07;
const LOG_APPEND_TIME = 0x08;
const TRANSACTIONAL = 0x10;
const CONTROL = 0x20;

/** Where a batch stands in a buffer, and what its header says. */
export interface RecordBatchHeader {
  /** The position of its first byte, and the position behind its last. */
  readonly start: number;
  readonly end: number;
  readonly baseOffset: bigint;
  /** Of the last record that was written, which compaction may have removed since. */
  readonly lastOffset: bigint;
  /** Of the leader that wrote it; -1 where that was before leaders had epochs. */
  readonly leaderEpoch: number;
  readonly attributes: number;
  readonly baseTimestamp: number;
  readonly maxTimestamp: number;
  readonly producerId: bigint;
  readonly recordCount: number;
}

/** The magic byte stands at the same place in all versions of the message format. */
export function magicAt(buffer: Buffer, start: number): number {
  return buffer.readInt8(start + 16);
}

/** Needs at least a whole header of magic 2 in the buffer. */
export function readBatchHeader(buffer: Buffer, start: number): RecordBatchHeader {
  const baseOffset = buffer.readBigInt64BE(start);
  return {
    start,
    end: start + BATCH_LENGTH_PREFIX_BYTES + buffer.readInt32BE(start + 8),
    baseOffset,
    lastOffset: baseOffset + BigInt(buffer.readInt32BE(start + 23)),
    leaderEpoch: buffer.readInt32BE(start + 12),
    attributes: buffer.readInt16BE(start + 21),
    baseTimestamp: Number(buffer.readBigInt64BE(start + 27)),
    maxTimestamp: Number(buffer.readBigInt64BE(start + 35)),
    producerId: buffer.readBigInt64BE(start + 43),
    recordCount: buffer.readInt32BE(start + 57),
  };
}

/** Whether the checksum (CRC-32C from the attributes to the end) is right. */
export function isIntact(buffer: Buffer, { start, end }: RecordBatchHeader): boolean {
  return crc32c(buffer.subarray(start + 21, end)) === buffer.readUInt32BE(start + 17);
}

export function compressionBits({ attributes }: RecordBatchHeader): number {
  return attributes & COMPRESSION_MASK;
}

/** The broker's time of appending stands in `maxTimestamp`, and the records' own times do not count. */
export function hasLogAppendTime({ attributes }: RecordBatchHeader): boolean {
  return (attributes & LOG_APPEND_TIME) !== 0;
}

export function isTransactional({ attributes }: RecordBatchHeader): boolean {
  return (attributes & TRANSACTIONAL) !== 0;
}

/** Holds a marker of the broker, and no record for anybody. */
export function isControl({ attributes }: RecordBatchHeader): boolean {
  return (attributes & CONTROL) !== 0;
}
