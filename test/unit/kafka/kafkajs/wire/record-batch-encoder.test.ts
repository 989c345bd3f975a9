import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { scanFetchedBytes } from '../../../../../src/kafka/kafkajs/fetched-bytes.ts';
import { RecordBatchDecoder } from '../../../../../src/kafka/kafkajs/wire/record-batch-decoder.ts';
import { RecordBatchEncoder, soleRecordBytes } from '../../../../../src/kafka/kafkajs/wire/record-batch-encoder.ts';
import { BATCH_HEADER_BYTES } from '../../../../../src/kafka/kafkajs/wire/record-batch-header.ts';
import type { Compression } from '../../../../../src/kafka/port.ts';
import { FatalError } from '../../../../../src/model/errors.ts';
import { NO_HEADERS, type Headers } from '../../../../../src/model/headers.ts';
import type { Payload } from '../../../../../src/model/record.ts';

const IDENTITY = { producerId: 7n, producerEpoch: 1, baseSequence: 0, transactional: true };

interface Sample {
  readonly key: Payload;
  readonly value: Payload;
  readonly timestamp: number;
  readonly headers: Headers;
}

function decode(batch: Buffer): { key: Buffer | null; value: Buffer | null; timestamp: number; headers: Headers }[] {
  const { batches, damage } = scanFetchedBytes('t', 0, batch, 0n, undefined);
  expect(damage).toBeUndefined();
  const decoder = new RecordBatchDecoder('t', 0, batch, batches, 0n);
  const records = [];
  for (let record = decoder.next(); record !== undefined; record = decoder.next()) {
    const { key, value, timestamp, headers } = record;
    records.push({ key, value, timestamp, headers });
  }
  return records;
}

function encode(samples: readonly Sample[], compression: Compression = 'none'): Buffer {
  const encoder = new RecordBatchEncoder();
  for (const { key, value, timestamp, headers } of samples) encoder.append(key, value, timestamp, headers);
  return encoder.seal(IDENTITY, compression);
}

function bytes(payload: Payload): Buffer | null {
  return payload === null ? null : Buffer.from(payload);
}

const payload = fc.oneof(
  fc.constant(null),
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc.string({ unit: 'grapheme-ascii', maxLength: 60 }),
  fc.uint8Array({ maxLength: 60 }),
);
const sample: fc.Arbitrary<Sample> = fc.record({
  key: payload,
  value: payload,
  timestamp: fc.oneof(
    fc.integer({ min: 1_700_000_000_000, max: 1_700_000_100_000 }),
    fc.integer({ min: -(2 ** 50), max: 2 ** 50 }),
    fc.constant(-1),
  ),
  headers: fc.array(fc.record({ key: fc.string(), value: fc.option(fc.uint8Array()) }), { maxLength: 3 }),
});

describe('the record batch encoder', () => {
  it('writes what the decoder reads, whatever the records hold', () => {
    fc.assert(
      fc.property(fc.array(sample, { minLength: 1, maxLength: 20 }), fc.constantFrom<Compression>('none', 'lz4'), (samples, codec) => {
        const records = decode(encode(samples, codec));
        expect(records).toEqual(
          samples.map(({ key, value, timestamp, headers }) => ({
            key: bytes(key),
            value: bytes(value),
            timestamp,
            headers: headers.map((header) => ({ key: header.key, value: header.value === null ? null : Buffer.from(header.value) })),
          })),
        );
      }),
    );
  });

  it.each([
    '',
    'a',
    'ascii that is longer than a few words',
    'ü',
    'naïve café',
    '日本語',
    '😀',
    'x'.repeat(23),
    'x'.repeat(24),
    `${'x'.repeat(30)}é`,
    'é'.repeat(20_000),
    'x'.repeat(200_000),
  ])('writes text %# as UTF-8 behind text of either kind', (text) => {
    const around = (value: string): Sample => ({ key: 'k', value, timestamp: 1, headers: NO_HEADERS });
    const samples = [around('plain'), around(text), around('plain'), around('größer'), around(text), { ...around('v'), key: text }];
    expect(decode(encode(samples)).map(({ key, value }) => [key?.toString(), value?.toString()])).toEqual(
      samples.map(({ key, value }) => [key, value]),
    );
  });

  it.each(['\ud800', 'a\ud800', '\udc00b', 'long enough for the native path \ud83d'])('writes a lone surrogate as U+FFFD: %#', (text) => {
    const [record] = decode(encode([{ key: text, value: text, timestamp: 1, headers: NO_HEADERS }]));
    expect(record?.value?.toString()).toBe(text.replaceAll(/[\ud800-\udfff]/g, '\ufffd'));
    expect(record?.key?.equals(Buffer.from(text, 'utf8'))).toBe(true);
  });

  it('keeps the base time of the first record and the latest time of all', () => {
    const batch = encode([5_000, 1_000, 9_000, 2_000].map((timestamp) => ({ key: null, value: 'v', timestamp, headers: NO_HEADERS })));
    expect([batch.readBigInt64BE(27), batch.readBigInt64BE(35)]).toEqual([5_000n, 9_000n]);
  });

  it.each([Number.NaN, 1.5, Infinity, 2 ** 60])('refuses the time %d', (timestamp) => {
    expect(() => new RecordBatchEncoder().append(null, 'v', timestamp, NO_HEADERS)).toThrow(FatalError);
  });

  it('takes a record that just fits and leaves the batch as it is for one that does not', () => {
    const one = soleRecordBytes('k', 'value', NO_HEADERS);
    const encoder = new RecordBatchEncoder(BATCH_HEADER_BYTES + one);
    expect(encoder.append('k', 'value', 1, NO_HEADERS)).toBe(true);
    expect(encoder.bytes).toBe(BATCH_HEADER_BYTES + one);
    expect(encoder.append(null, null, 99, NO_HEADERS)).toBe(false);
    expect([encoder.count, encoder.bytes]).toEqual([1, BATCH_HEADER_BYTES + one]);
    const batch = encoder.seal(IDENTITY);
    expect(decode(batch)).toHaveLength(1);
    expect(batch.readBigInt64BE(35)).toBe(1n);
    encoder.reset(BATCH_HEADER_BYTES + one - 1);
    expect(encoder.append('k', 'value', 1, NO_HEADERS)).toBe(false);
    expect(encoder.count).toBe(0);
  });

  it('measures a record that is alone in its batch exactly', () => {
    fc.assert(
      fc.property(sample, ({ key, value, timestamp, headers }) => {
        const encoder = new RecordBatchEncoder();
        encoder.append(key, value, timestamp, headers);
        expect(soleRecordBytes(key, value, headers)).toBe(encoder.bytes - BATCH_HEADER_BYTES);
      }),
    );
  });

  it('leaves records that compression would enlarge as they are', () => {
    const batch = encode([{ key: null, value: Buffer.from([1, 2, 3]), timestamp: 1, headers: NO_HEADERS }], 'gzip');
    expect(batch.readInt16BE(21) & 7).toBe(0);
    expect(decode(batch)[0]?.value).toEqual(Buffer.from([1, 2, 3]));
  });

  it('begins anew after reset, in the same buffer', () => {
    const encoder = new RecordBatchEncoder();
    for (let i = 0; i < 2_000; i++) encoder.append('key', `value ${i}`, i, NO_HEADERS);
    const { capacity } = encoder;
    encoder.reset();
    encoder.append(null, 'again', 3, NO_HEADERS);
    expect(encoder.capacity).toBe(capacity);
    expect(decode(encoder.seal(IDENTITY))).toEqual([{ key: null, value: Buffer.from('again'), timestamp: 3, headers: [] }]);
  });
});
