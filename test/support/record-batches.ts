import { crc32c } from '@node-rs/crc32';
import { RecordBatchEncoder } from '../../src/kafka/kafkajs/wire/record-batch-encoder.ts';
import type { Compression } from '../../src/kafka/port.ts';
import type { Headers } from '../../src/model/headers.ts';
import type { ConsumedRecord, Payload } from '../../src/model/record.ts';

export interface RecordSpec {
  readonly key?: Payload;
  readonly value?: Payload;
  readonly timestamp?: number;
  readonly headers?: Headers;
}

export interface BatchSpec {
  readonly baseOffset?: bigint;
  readonly records?: readonly RecordSpec[];
  readonly producerId?: bigint;
  readonly transactional?: boolean;
  readonly compression?: Compression;
  /** Compaction keeps the offset of the last record that was written, also when it has removed it. */
  readonly lastOffsetDelta?: number;
  /** The broker's time, which replaces that of the records. */
  readonly appendTime?: number;
}

const ATTRIBUTES_AT = 21;
const CONTROL = 0x20;
const LOG_APPEND_TIME = 0x08;

/** A record batch as it stands in a log. */
export function batchBytes(spec: BatchSpec): Buffer {
  const encoder = new RecordBatchEncoder();
  for (const { key = null, value = null, timestamp = 1_000, headers = [] } of spec.records ?? []) {
    encoder.append(key, value, timestamp, headers);
  }
  const transactional = spec.transactional ?? false;
  const producerId = spec.producerId ?? -1n;
  const identity = { producerId, producerEpoch: 0, baseSequence: 0, transactional };
  const batch = Buffer.from(encoder.seal(identity, spec.compression));
  batch.writeBigInt64BE(spec.baseOffset ?? 0n, 0);
  if (spec.lastOffsetDelta !== undefined) batch.writeInt32BE(spec.lastOffsetDelta, 23);
  if (spec.appendTime !== undefined) {
    setAttribute(batch, LOG_APPEND_TIME);
    batch.writeBigInt64BE(BigInt(spec.appendTime), 35);
  }
  return resealed(batch);
}

/** The marker that a broker writes where a transaction ends. */
export function markerBytes(baseOffset: bigint, producerId: bigint, outcome: 'abort' | 'commit'): Buffer {
  const key = Buffer.from([0, 0, 0, outcome === 'abort' ? 0 : 1]);
  const value = Buffer.from([0, 0, 0, 0, 0, 0]);
  const batch = batchBytes({ baseOffset, producerId, transactional: true, records: [{ key, value }] });
  setAttribute(batch, CONTROL);
  return resealed(batch);
}

/** Makes the checksum right for what the bytes are now. */
export function resealed(batch: Buffer): Buffer {
  batch.writeUInt32BE(crc32c(batch.subarray(ATTRIBUTES_AT)), 17);
  return batch;
}

function setAttribute(batch: Buffer, attribute: number): void {
  batch.writeInt16BE(batch.readInt16BE(ATTRIBUTES_AT) | attribute, ATTRIBUTES_AT);
}

export function drain(cursor: { next(): ConsumedRecord | undefined }): ConsumedRecord[] {
  const records: ConsumedRecord[] = [];
  for (let record = cursor.next(); record !== undefined; record = cursor.next()) records.push(record);
  return records;
}

export function texts(records: readonly ConsumedRecord[]): (string | null)[] {
  return records.map(({ value }) => value?.toString('utf8') ?? null);
}
