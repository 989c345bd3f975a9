import { describe, expect, it } from 'vitest';
import { scanFetchedBytes } from '../../../../../src/kafka/kafkajs/fetched-bytes.ts';
import { RecordBatchDecoder } from '../../../../../src/kafka/kafkajs/wire/record-batch-decoder.ts';
import { RecordBatchEncoder } from '../../../../../src/kafka/kafkajs/wire/record-batch-encoder.ts';
import { FatalError } from '../../../../../src/model/errors.ts';
import { batchBytes, drain, resealed, texts } from '../../../../support/record-batches.ts';

function decoder(bytes: Buffer, from = 0n): RecordBatchDecoder {
  const { batches, damage } = scanFetchedBytes('t', 3, bytes, from, undefined);
  expect(damage).toBeUndefined();
  return new RecordBatchDecoder('t', 3, bytes, batches, from);
}

const HEADER_BYTES = 61;

/** A batch of one record whose bytes are given, its checksum right. */
function crafted(record: readonly number[], count = 1): Buffer {
  const batch = Buffer.concat([batchBytes({ records: [] }), Buffer.from(record)]);
  batch.writeInt32BE(batch.length - 12, 8);
  batch.writeInt32BE(count - 1, 23);
  batch.writeInt32BE(count, 57);
  return resealed(batch);
}

describe('RecordBatchDecoder', () => {
  it('reads keys and values as text', () => {
    const invalid = Buffer.from([0x61, 0xff]);
    const records = drain(
      decoder(
        batchBytes({
          records: [
            { key: 'k', value: 'ä€😀' },
            { key: null, value: null },
            { key: '', value: invalid },
          ],
        }),
      ),
    );
    expect(records.map((record) => [record.keyText(), record.valueText()])).toEqual([
      ['k', 'ä€😀'],
      [null, null],
      ['', 'a\uFFFD'],
    ]);
  });

  it('gives everything that a record carries', () => {
    const headers = [
      { key: 'a', value: Buffer.from('1') },
      { key: 'a', value: null },
      { key: '', value: Buffer.alloc(0) },
    ];
    const records = drain(
      decoder(
        batchBytes({
          baseOffset: 2n ** 40n,
          records: [
            { key: 'k', value: 'v', timestamp: 5_000, headers },
            { key: null, value: null, timestamp: 4_000 },
            { key: '', value: '', timestamp: 6_000 },
          ],
        }),
        2n ** 40n,
      ),
    );
    expect(records.map(({ topic, partition, offset, timestamp }) => ({ topic, partition, offset, timestamp }))).toEqual([
      { topic: 't', partition: 3, offset: 2n ** 40n, timestamp: 5_000 },
      { topic: 't', partition: 3, offset: 2n ** 40n + 1n, timestamp: 4_000 },
      { topic: 't', partition: 3, offset: 2n ** 40n + 2n, timestamp: 6_000 },
    ]);
    expect(records.map(({ key, value }) => [key, value])).toEqual([
      [Buffer.from('k'), Buffer.from('v')],
      [null, null],
      [Buffer.alloc(0), Buffer.alloc(0)],
    ]);
    expect(records[0]?.headers).toEqual(headers);
    expect(records[1]?.headers).toEqual([]);
  });

  it('reads timestamps that lie years apart, and before 1970', () => {
    const timestamps = [1_700_000_000_000, 0, -1, 4_102_444_800_000, 1_700_000_000_000 - 2 ** 27, 1_700_000_000_000 + 2 ** 34, -(2 ** 45)];
    const records = drain(decoder(batchBytes({ records: timestamps.map((timestamp) => ({ value: 'v', timestamp })) })));
    expect(records.map(({ timestamp }) => timestamp)).toEqual(timestamps);
  });

  it("takes the broker's time where the topic has log append time", () => {
    const bytes = batchBytes({ appendTime: 9_999, records: [{ timestamp: 1 }, { timestamp: 500 }] });
    expect(drain(decoder(bytes)).map(({ timestamp }) => timestamp)).toEqual([9_999, 9_999]);
  });

  it('passes over the records of a batch below the offset that was asked for', () => {
    const bytes = batchBytes({ baseOffset: 10n, records: ['a', 'b', 'c'].map((value) => ({ value })) });
    expect(texts(drain(decoder(bytes, 11n)))).toEqual(['b', 'c']);
    expect(texts(drain(decoder(bytes, 12n)))).toEqual(['c']);
    expect(texts(drain(decoder(bytes, 13n)))).toEqual([]);
  });

  it.each(['gzip', 'snappy', 'lz4', 'zstd'] as const)('reads batches that are compressed with %s', (compression) => {
    // Reading works everywhere; where this Node cannot write zstd, the golden tests read it.
    if (compression === 'zstd' && !('zstdCompressSync' in process.getBuiltinModule('node:zlib'))) return;
    const records = Array.from({ length: 500 }, (_, i) => ({ key: `key ${i}`, value: `value ${i}`.repeat(5) }));
    const bytes = Buffer.concat([batchBytes({ records, compression }), batchBytes({ baseOffset: 500n, records: [{ value: 'plain' }] })]);
    expect(texts(drain(decoder(bytes)))).toEqual([...records.map(({ value }) => value), 'plain']);
  });

  it('names the batch that cannot be decompressed', () => {
    const bytes = batchBytes({
      baseOffset: 7n,
      records: Array.from({ length: 50 }, () => ({ value: 'x'.repeat(20) })),
      compression: 'gzip',
    });
    bytes.fill(0xff, HEADER_BYTES + 2);
    expect(() => drain(decoder(resealed(bytes), 7n))).toThrow(/t\/3: the batch at offset 7 cannot be read/);
  });

  it('reads a batch of 300,000 records', () => {
    const encoder = new RecordBatchEncoder();
    for (let i = 0; i < 300_000; i++) encoder.append(null, `${i}`, 1_000 + i, []);
    const bytes = encoder.seal({ producerId: -1n, producerEpoch: -1, baseSequence: -1, transactional: false });
    const cursor = decoder(bytes);
    let count = 0;
    for (let record = cursor.next(); record !== undefined; record = cursor.next()) {
      if (count % 50_000 === 49_999) expect(record.value?.toString()).toBe(`${count}`);
      count++;
    }
    expect(count).toBe(300_000);
  });

  describe('ends with a FatalError that names the batch, where the checksum is right and the bytes are not', () => {
    const [attributes, deltas, nullKey, nullValue, noHeaders] = [0, [0, 0], 1, 1, 0];
    it.each([
      ['a length that never ends', [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]],
      ['a length beyond the batch', [100, attributes, ...deltas, nullKey, nullValue, noHeaders]],
      ['a negative length', [3, attributes, ...deltas, nullKey, nullValue, noHeaders]],
      ['a record that is too short for its fields', [8, attributes, ...deltas, nullKey]],
      ['a timestamp that never ends', [40, attributes, ...Array.from({ length: 19 }, () => 0x80)]],
      ['a key beyond its record', [12, attributes, ...deltas, 100, nullValue, noHeaders]],
      ['a key length below -1', [12, attributes, ...deltas, 3, nullValue, noHeaders]],
      ['a value beyond its record', [12, attributes, ...deltas, nullKey, 100, noHeaders]],
      ['a value length below -1', [12, attributes, ...deltas, nullKey, 3, noHeaders]],
      ['bytes behind its last field', [14, attributes, ...deltas, nullKey, nullValue, noHeaders, 0]],
      ['an offset beyond the batch', [12, attributes, 0, 2, nullKey, nullValue, noHeaders]],
      ['bytes behind its last record', [12, attributes, ...deltas, nullKey, nullValue, noHeaders, 9, 9, 9]],
    ])('%s', (_, record) => {
      const cursor = decoder(crafted(record));
      expect(() => drain(cursor)).toThrow(FatalError);
      expect(() => drain(decoder(crafted(record)))).toThrow(/t\/3: the batch at offset 0 is corrupt/);
    });

    it('more records than its bytes hold', () => {
      expect(() => drain(decoder(crafted([12, attributes, ...deltas, nullKey, nullValue, noHeaders], 2)))).toThrow(FatalError);
    });

    it.each([
      ['more headers than bytes', [14, attributes, ...deltas, nullKey, nullValue, 100, 0]],
      ['a negative number of headers', [14, attributes, ...deltas, nullKey, nullValue, 1, 0]],
      ['a header beyond its record', [18, attributes, ...deltas, nullKey, nullValue, 2, 100, 0, 0]],
      ['a null header key', [16, attributes, ...deltas, nullKey, nullValue, 2, 1, 0]],
    ])('%s', (_, record) => {
      const [first] = drain(decoder(crafted(record)));
      expect(() => first?.headers).toThrow(FatalError);
    });

    it('any other byte: it decodes or throws FatalError, and ends in any case', () => {
      const records = Array.from({ length: 5 }, (_, i) => ({
        key: `key ${i}`,
        value: 'v'.repeat(i * 40),
        timestamp: 1_000 + i * 100_000_000_000,
        headers: [{ key: 'h', value: Buffer.from('x') }],
      }));
      const good = batchBytes({ records });
      for (let at = HEADER_BYTES; at < good.length; at++) {
        for (const byte of [0x00, 0x01, 0x7f, 0x80, 0xff]) {
          const bad = Buffer.from(good);
          bad[at] = byte;
          try {
            for (const record of drain(decoder(resealed(bad)))) void [record.key, record.value, record.headers, record.offset];
          } catch (error) {
            expect(error).toBeInstanceOf(FatalError);
          }
        }
      }
    });
  });
});
