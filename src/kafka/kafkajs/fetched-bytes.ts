import { FatalError } from '../../model/errors.ts';
import { topicPartitionKey } from '../../model/topic-partition.ts';
import type { ReadCommittedFilter } from './read-committed-filter.ts';
import {
  BATCH_HEADER_BYTES,
  BATCH_LENGTH_PREFIX_BYTES,
  isControl,
  isIntact,
  magicAt,
  readBatchHeader,
  type RecordBatchHeader,
} from './wire/record-batch-header.ts';

const MAGIC_BYTES = 17;
const ABORT_MARKER = 0;

/** What the bytes of one partition in a Fetch answer hold. */
export interface ScannedBytes {
  /** The batches with records for the reader, in offset order. */
  readonly batches: readonly RecordBatchHeader[];
  /** Behind the last whole batch, whatever it held; where the fetch began, when there is none. */
  readonly nextOffset: bigint;
  /** Of the last whole batch; -1 when there is none. */
  readonly leaderEpoch: number;
  /** The first batch that did not arrive as it was written; what stands before it is good. */
  readonly damage: string | undefined;
}

/**
 * Looks at every batch without decoding a record: checks its checksum, drops control batches and, where there is a filter, what was aborted. A
 * batch that is cut off at the end is no damage: the broker cuts the log by bytes. Throws FatalError for formats before version 2.
 */
export function scanFetchedBytes(
  topic: string,
  partition: number,
  bytes: Buffer,
  fetchOffset: bigint,
  filter: ReadCommittedFilter | undefined,
): ScannedBytes {
  const batches: RecordBatchHeader[] = [];
  let nextOffset = fetchOffset;
  let leaderEpoch = -1;
  let position = 0;
  while (position + MAGIC_BYTES <= bytes.length) {
    const magic = magicAt(bytes, position);
    const baseOffset = bytes.readBigInt64BE(position);
    const end = position + BATCH_LENGTH_PREFIX_BYTES + bytes.readInt32BE(position + 8);
    // The length first: a damaged one makes no sense of what follows.
    if (end < position + MAGIC_BYTES) {
      return { batches, nextOffset, leaderEpoch, damage: damaged(topic, partition, baseOffset, 'its length is impossible') };
    }
    if (magic === 0 || magic === 1) throw oldFormat(topic, partition, baseOffset, magic);
    if (end > bytes.length) break;
    if (magic !== 2) {
      return { batches, nextOffset, leaderEpoch, damage: damaged(topic, partition, baseOffset, `its message format is ${magic}`) };
    }
    if (end < position + BATCH_HEADER_BYTES) {
      return { batches, nextOffset, leaderEpoch, damage: damaged(topic, partition, baseOffset, 'its length is impossible') };
    }
    const header = readBatchHeader(bytes, position);
    if (!isIntact(bytes, header) || header.lastOffset < header.baseOffset) {
      return { batches, nextOffset, leaderEpoch, damage: damaged(topic, partition, baseOffset, 'its CRC-32C checksum is wrong') };
    }
    const control = isControl(header);
    const aborted = filter?.isAborted(header, control && controlType(bytes, header) === ABORT_MARKER) ?? false;
    if (header.lastOffset >= nextOffset) {
      if (!control && !aborted && header.recordCount > 0) batches.push(header);
      nextOffset = header.lastOffset + 1n;
      leaderEpoch = header.leaderEpoch;
    }
    position = end;
  }
  return { batches, nextOffset, leaderEpoch, damage: undefined };
}

/** The kind of marker: 0 abort, 1 commit, others of the cluster's own. Stands in the record's key, behind a version. */
function controlType(bytes: Buffer, { start, end, recordCount }: RecordBatchHeader): number | undefined {
  if (recordCount === 0) return undefined;
  // Length, attributes, timestamp delta, offset delta, key length: all but attributes are variable-length numbers.
  let position = start + BATCH_HEADER_BYTES;
  for (const field of ['length', 'attributes', 'timestamp', 'offset', 'key length']) {
    if (field === 'attributes') position++;
    else {
      while (position < end && bytes[position]! >= 0x80) position++;
      position++;
    }
  }
  return position + 4 <= end ? bytes.readInt16BE(position + 2) : undefined;
}

function damaged(topic: string, partition: number, baseOffset: bigint, what: string): string {
  return `${topicPartitionKey(topic, partition)}: the batch at offset ${baseOffset} is damaged: ${what}`;
}

function oldFormat(topic: string, partition: number, baseOffset: bigint, magic: number): FatalError {
  return new FatalError(
    `${topicPartitionKey(topic, partition)}: the record at offset ${baseOffset} is stored in message format ${magic}, which Kafka wrote before 0.11. ` +
      'It has neither headers nor transactions and is not read here: copy the topic with a newer producer, or start behind these records.',
  );
}
