import * as zlib from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { scanFetchedBytes } from '../../../src/kafka/kafkajs/fetched-bytes.ts';
import { ReadCommittedFilter } from '../../../src/kafka/kafkajs/read-committed-filter.ts';
import { RecordBatchDecoder } from '../../../src/kafka/kafkajs/wire/record-batch-decoder.ts';
import { RecordBatchEncoder } from '../../../src/kafka/kafkajs/wire/record-batch-encoder.ts';
import type { Compression } from '../../../src/kafka/port.ts';
import golden from './recordbatch.json' with { type: 'json' };

type GoldenBatch = (typeof golden.batches)[number];

const dataBatches = golden.batches.filter(({ control }) => !control);
const controlBatches = golden.batches.filter(({ control }) => control);

function bytesOf(batch: GoldenBatch): Buffer {
  return Buffer.from(batch.hex, 'hex');
}

function fromHex(hex: string | null): Buffer | null {
  return hex === null ? null : Buffer.from(hex, 'hex');
}

/** The text of these bytes, where they are UTF-8. */
function asText(bytes: Buffer | null): Buffer | string | null {
  if (bytes === null) return null;
  const text = bytes.toString('utf8');
  return Buffer.from(text, 'utf8').equals(bytes) ? text : bytes;
}

function decode(bytes: Buffer): object[] {
  const { batches, damage } = scanFetchedBytes('golden', 0, bytes, 0n, undefined);
  expect(damage).toBeUndefined();
  const decoder = new RecordBatchDecoder('golden', 0, bytes, batches, 0n);
  const records: object[] = [];
  for (let record = decoder.next(); record !== undefined; record = decoder.next()) {
    const { offset, timestamp, key, value, headers } = record;
    records.push({
      offset: Number(offset),
      timestamp,
      keyHex: key?.toString('hex') ?? null,
      valueHex: value?.toString('hex') ?? null,
      headers: headers.map((header) => [header.key, header.value === null ? null : Buffer.from(header.value).toString('hex')]),
    });
  }
  return records;
}

function expected(batch: GoldenBatch): object[] {
  return batch.records.map(({ offset, timestamp, keyHex, valueHex, headers }) => ({ offset, timestamp, keyHex, valueHex, headers }));
}

function encode(batch: GoldenBatch, asStrings: boolean, compression: Compression): Buffer {
  const encoder = new RecordBatchEncoder();
  for (const { keyHex, valueHex, timestamp, headers } of batch.records) {
    const [key, value] = [fromHex(keyHex), fromHex(valueHex)];
    encoder.append(
      asStrings ? asText(key) : key,
      asStrings ? asText(value) : value,
      timestamp,
      headers.map(([name, hex]) => ({ key: name ?? '', value: fromHex(hex ?? null) })),
    );
  }
  const identity = {
    producerId: BigInt(batch.producerId),
    producerEpoch: batch.producerEpoch,
    baseSequence: batch.baseSequence,
    transactional: batch.transactional,
  };
  const bytes = Buffer.from(encoder.seal(identity, compression));
  // The broker gives a batch its offset; the checksum does not cover it.
  bytes.writeBigInt64BE(BigInt(batch.baseOffset), 0);
  return bytes;
}

describe('record batches of the Java client', () => {
  it('has batches of each kind', () => {
    expect(dataBatches.map(({ compression }) => compression)).toEqual(expect.arrayContaining(['none', 'gzip', 'snappy', 'lz4', 'zstd']));
    expect(controlBatches).toHaveLength(2);
  });

  it.each(dataBatches)('$name is read', (batch) => {
    expect(decode(bytesOf(batch))).toEqual(expected(batch));
  });

  it.each(dataBatches)('$name with one bit turned over anywhere behind the checksum is damaged', (batch) => {
    const bytes = bytesOf(batch);
    for (let at = 21; at < bytes.length; at++) {
      bytes[at]! ^= 0x10;
      expect(scanFetchedBytes('golden', 0, bytes, 0n, undefined).damage, `byte ${at}`).toMatch(/checksum/);
      bytes[at]! ^= 0x10;
    }
  });

  it.each(dataBatches.filter(({ compression }) => compression === 'none'))('$name is written byte for byte', (batch) => {
    expect(encode(batch, false, 'none').toString('hex')).toBe(batch.hex);
    expect(encode(batch, true, 'none').toString('hex')).toBe(batch.hex);
  });

  const compressed = dataBatches.filter(({ compression }) => compression !== 'none');
  const writable = compressed.filter(({ compression }) => compression !== 'zstd' || 'zstdCompressSync' in zlib);

  it.each(writable)('$name is written so that it reads the same', (batch) => {
    const bytes = encode(batch, false, batch.compression as Compression);
    expect(bytes.readInt16BE(21)).toBe(bytesOf(batch).readInt16BE(21));
    expect(decode(bytes)).toEqual(expected(batch));
  });

  it.each(compressed.filter((batch) => !writable.includes(batch)))(
    '$name cannot be written by this version of Node, which is said',
    (batch) => {
      expect(() => encode(batch, false, 'zstd')).toThrow(/needs Node 22\.15/);
    },
  );

  it.each(controlBatches)('$name moves the position and is no record', (batch) => {
    const bytes = bytesOf(batch);
    const scanned = scanFetchedBytes('golden', 0, bytes, 0n, undefined);
    expect(scanned).toMatchObject({ batches: [], nextOffset: BigInt(batch.lastOffset) + 1n, damage: undefined });
  });

  it.each(controlBatches)('$name ends an aborted transaction exactly if it is the abort marker', (batch) => {
    const producerId = BigInt(batch.producerId);
    const transactional = golden.batches.find(({ name }) => name === 'transactional')!;
    const data = bytesOf(transactional);
    const later = bytesOf(transactional);
    later.writeBigInt64BE(100n, 0);
    const filter = new ReadCommittedFilter([{ producerId, firstOffset: 0n }]);
    const { batches } = scanFetchedBytes('golden', 0, Buffer.concat([data, bytesOf(batch), later]), 0n, filter);
    expect(batches.map(({ baseOffset }) => baseOffset)).toEqual(batch.name === 'control-abort' ? [100n] : []);
  });
});
