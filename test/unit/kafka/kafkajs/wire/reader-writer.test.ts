import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { WireReader } from '../../../../../src/kafka/kafkajs/wire/reader.ts';
import { WireWriter } from '../../../../../src/kafka/kafkajs/wire/writer.ts';
import { FatalError } from '../../../../../src/model/errors.ts';

const reading = (buffer: Buffer) => new WireReader(buffer, 'Test v1 answer');

interface Field {
  readonly write: (writer: WireWriter) => unknown;
  readonly read: (reader: WireReader) => unknown;
  readonly value: unknown;
}

const bytes = fc.uint8Array({ maxLength: 300 }).map((value) => Buffer.from(value));
const text = fc.string({ unit: 'binary', maxLength: 200 });
const field = fc.oneof<fc.Arbitrary<Field>[]>(
  fc.integer({ min: -128, max: 127 }).map((value) => ({ value, write: (w) => w.int8(value), read: (r) => r.int8() })),
  fc.integer({ min: -32_768, max: 32_767 }).map((value) => ({ value, write: (w) => w.int16(value), read: (r) => r.int16() })),
  fc.integer().map((value) => ({ value, write: (w) => w.int32(value), read: (r) => r.int32() })),
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map((value) => ({ value, write: (w) => w.int64(value), read: (r) => r.int64() })),
  fc.integer({ min: 0, max: 0xffffffff }).map((value) => ({ value, write: (w) => w.uvarint(value), read: (r) => r.uvarint() })),
  fc.integer().map((value) => ({ value, write: (w) => w.varint(value), read: (r) => r.varint() })),
  fc.boolean().map((value) => ({ value, write: (w) => w.boolean(value), read: (r) => r.boolean() })),
  text.map((value) => ({ value, write: (w) => w.string(value), read: (r) => r.string() })),
  text.map((value) => ({ value, write: (w) => w.compactString(value), read: (r) => r.compactString() })),
  fc.option(text).map((value) => ({ value, write: (w) => w.nullableString(value), read: (r) => r.nullableString() })),
  fc.option(text).map((value) => ({ value, write: (w) => w.compactNullableString(value), read: (r) => r.compactNullableString() })),
  fc.option(bytes).map((value) => ({ value, write: (w) => w.bytes(value), read: (r) => r.nullableBytes() })),
  fc.option(bytes).map((value) => ({ value, write: (w) => w.compactBytes(value), read: (r) => r.compactNullableBytes() })),
  fc.array(text, { maxLength: 20 }).map((value) => ({
    value,
    write: (w) => w.array(value, (each, item) => each.string(item)),
    read: (r) => r.array((each) => each.string()),
  })),
  fc.array(text, { maxLength: 20 }).map((value) => ({
    value,
    write: (w) => w.compactArray(value, (each, item) => each.compactString(item).tags()),
    read: (r) =>
      r.compactArray((each) => {
        const item = each.compactString();
        each.skipTags();
        return item;
      }),
  })),
);

function written(fields: readonly Field[]): Buffer {
  const writer = new WireWriter(1);
  for (const { write } of fields) write(writer);
  return writer.toBuffer();
}

describe('WireWriter and WireReader', () => {
  it('read what was written, whatever follows what', () => {
    fc.assert(
      fc.property(fc.array(field, { maxLength: 30 }), (fields) => {
        const reader = reading(written(fields));
        expect(fields.map(({ read }) => read(reader))).toEqual(fields.map(({ value }) => value));
        expect(reader.remaining).toBe(0);
      }),
    );
  });

  it('end a truncated answer with an error, never with a value of bytes that are not there', () => {
    fc.assert(
      fc.property(fc.array(field, { minLength: 1, maxLength: 10 }), fc.nat(), (fields, cut) => {
        const whole = written(fields);
        const reader = reading(whole.subarray(0, cut % whole.length));
        expect(() => fields.forEach(({ read }) => read(reader))).toThrow(FatalError);
      }),
    );
  });

  it('survive random bytes', () => {
    fc.assert(
      fc.property(bytes, fc.array(field, { minLength: 1, maxLength: 10 }), (random, fields) => {
        const reader = reading(random);
        try {
          fields.forEach(({ read }) => read(reader));
        } catch (error) {
          expect(error).toBeInstanceOf(FatalError);
        }
        expect(reader.remaining).toBeGreaterThanOrEqual(0);
      }),
    );
  });

  it('say which answer and which field', () => {
    expect(() => reading(Buffer.from([0, 5, 65])).string('topic name')).toThrow(/Test v1 answer.*'topic name' at byte 2 of 3/);
    expect(() => reading(Buffer.from([255, 255])).string('topic name')).toThrow(/null.*topic name/);
    expect(() => reading(Buffer.from([127, 255, 255, 255])).array((r) => r.int8(), 'brokers')).toThrow(/2147483647 elements for 'brokers'/);
    expect(() => reading(Buffer.alloc(10, 0xff)).uvarint('count')).toThrow(/longer than 32 bits/);
  });

  it('pass over tagged fields of any size', () => {
    const writer = new WireWriter();
    writer.uvarint(2).uvarint(0).uvarint(3).raw(Buffer.from('abc')).uvarint(7).uvarint(0).int16(42);
    const reader = reading(writer.toBuffer());
    reader.skipTags();
    expect(reader.int16()).toBe(42);
  });

  it('reset keeps the buffer and forgets what was written', () => {
    const writer = new WireWriter(4);
    writer.string('long enough to grow');
    const first = writer.toBuffer();
    writer.reset();
    writer.int32(0).int8(1).patchInt32(0, 7);
    expect(writer.toBuffer()).toEqual(Buffer.from([0, 0, 0, 7, 1]));
    expect(reading(first).string()).toBe('long enough to grow');
  });
});
