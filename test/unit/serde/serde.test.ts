import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bytes } from '../../../src/serde/bytes.ts';
import { json } from '../../../src/serde/json.ts';
import { nullable } from '../../../src/serde/nullable.ts';
import { float64, int32, int64, number } from '../../../src/serde/number.ts';
import type { Serde, SerdeContext } from '../../../src/serde/serde.ts';
import { string } from '../../../src/serde/string.ts';
import { DeserialisationError, SerialisationError } from '../../../src/model/errors.ts';

const CONTEXT: SerdeContext = { topic: 't', part: 'value' };

function read<T>(serde: Serde<T>, payload: Uint8Array | string | null): T {
  return serde.deserialise(payload === null ? null : Buffer.from(payload as Uint8Array), CONTEXT);
}

/** The bytes on the wire. */
function written<T>(serde: Serde<T>, value: T): Buffer {
  const payload = serde.serialise(value, CONTEXT);
  if (payload === null) throw new Error('null was written');
  return Buffer.from(payload as Uint8Array);
}

/** What plain JavaScript may pass. */
function write(serde: Serde<unknown>, value: unknown): unknown {
  return serde.serialise(value, CONTEXT);
}

describe('string', () => {
  it('writes and reads UTF-8', () => {
    expect(written(string(), 'é€😀').toString('hex')).toBe('c3a9e282acf09f9880');
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        fc.pre((text as string & { isWellFormed(): boolean }).isWellFormed());
        expect(read(string(), written(string(), text))).toBe(text);
      }),
    );
  });

  it('keeps the replacement character and a byte order mark', () => {
    expect(read(string(), '\uFFFD')).toBe('\uFFFD');
    expect(read(string(), '\uFEFFa')).toBe('\uFEFFa');
  });

  it.each([
    ['a lone continuation byte', [0x61, 0x80]],
    ['an overlong form', [0xc0, 0xaf]],
    ['a character that is cut off', [0xe2, 0x82]],
    ['a surrogate', [0xed, 0xa0, 0x80]],
    ['a valid replacement character beside an invalid byte', [0xef, 0xbf, 0xbd, 0xff]],
  ])('refuses %s', (_, octets) => {
    expect(() => read(string(), Buffer.from(octets))).toThrow(new DeserialisationError('the bytes are not valid UTF-8'));
  });

  it('refuses null, and says what to do', () => {
    expect(() => read(string(), null)).toThrow(/null cannot be read as string.*nullable\(\.\.\.\)/);
    expect(() => write(string(), null)).toThrow(/null \(use nullable/);
  });

  it('refuses what is no text that UTF-8 can express', () => {
    expect(() => written(string(), 'a\uD800')).toThrow(SerialisationError);
    expect(() => write(string(), 7)).toThrow(/a string is needed, but got number/);
    expect(() => write(string(), undefined)).toThrow(SerialisationError);
  });
});

describe('json', () => {
  it('writes and reads JSON', () => {
    fc.assert(
      fc.property(fc.jsonValue({ noUnicodeString: false }), (value) => {
        expect(read(json(), written(json(), value))).toEqual(JSON.parse(JSON.stringify(value)));
      }),
    );
  });

  it("takes JSON's null for a value, and a null payload for none", () => {
    expect(read(json(), 'null')).toBeNull();
    expect(written(json(), null).toString()).toBe('null');
    expect(() => read(json(), null)).toThrow(/null cannot be read as json.*nullable/);
  });

  it.each(['', '{', 'undefined', "{'a':1}"])('refuses %j', (text) => {
    expect(() => read(json(), text)).toThrow(/^not valid JSON: /);
    expect(() => read(json(), text)).toThrow(DeserialisationError);
  });

  it('refuses text that is not UTF-8', () => {
    expect(() => read(json(), Buffer.from([0x22, 0xff, 0x22]))).toThrow(/not valid UTF-8/);
  });

  it('refuses what JSON cannot express', () => {
    const cycle: unknown[] = [];
    cycle.push(cycle);
    expect(() => written(json(), undefined)).toThrow(/undefined cannot be written as JSON \(a missing return/);
    expect(() => written(json(), () => 1)).toThrow(/a function cannot be written/);
    expect(() => written(json(), 1n)).toThrow(/cannot be written as JSON: .*BigInt/);
    expect(() => written(json(), cycle)).toThrow(SerialisationError);
  });

  it('validates with a function', () => {
    const positive = json({
      validate: (value) => {
        if (typeof value !== 'number' || value < 0) throw new TypeError('a positive number is needed');
        return value;
      },
    });
    expect(read(positive, '7')).toBe(7);
    expect(() => read(positive, '-7')).toThrow(new DeserialisationError('the JSON is not what is expected: a positive number is needed'));
    expect(() => read(positive, '{')).toThrow(/^not valid JSON/);
    expect(written(positive, 7).toString()).toBe('7');
  });

  it('validates with a Standard Schema', () => {
    const schema = {
      '~standard': {
        version: 1 as const,
        vendor: 'test',
        validate: (value: unknown) =>
          typeof value === 'string'
            ? { value: value.trim() }
            : { issues: [{ message: 'no text', path: ['a', { key: 0 }] }, { message: 'nothing else either' }] },
      },
    };
    expect(read(json({ validate: schema }), '" a "')).toBe('a');
    expect(() => read(json({ validate: schema }), '7')).toThrow(/a\.0: no text; nothing else either/);
  });

  it('refuses a schema that needs to wait', () => {
    const schema = { '~standard': { validate: async () => Promise.reject(new Error('late')) } };
    expect(() => read(json({ validate: schema }), '7')).toThrow(/validates asynchronously/);
  });
});

describe('numbers', () => {
  it('have the formats of the Java serialisers', () => {
    // DoubleSerializer, IntegerSerializer and LongSerializer write big endian.
    expect(written(number(), 1.5).toString('hex')).toBe('3ff8000000000000');
    expect(written(float64(), -0).toString('hex')).toBe('8000000000000000');
    expect(written(int32(), -2).toString('hex')).toBe('fffffffe');
    expect(written(int64(), 258n).toString('hex')).toBe('0000000000000102');
    expect(written(int64(), -1n).toString('hex')).toBe('ffffffffffffffff');
  });

  it('read what they have written', () => {
    const survives = <T>(serde: Serde<T>) =>
      fc.property(arbitraries.get(serde.name) as fc.Arbitrary<T>, (value) => {
        expect(read(serde, written(serde, value))).toBe(value);
      });
    const arbitraries = new Map<string, fc.Arbitrary<unknown>>([
      ['float64', fc.double()],
      ['int32', fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 })],
      ['int64', fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })],
    ]);
    fc.assert(survives(float64()));
    fc.assert(survives(int32()));
    fc.assert(survives(int64()));
  });

  it('refuse what does not fit', () => {
    for (const value of [1.5, 2 ** 31, -(2 ** 31) - 1, NaN, Infinity, '7', 7n, null])
      expect(() => write(int32(), value)).toThrow(SerialisationError);
    for (const value of [2n ** 63n, -(2n ** 63n) - 1n, 7, null]) expect(() => write(int64(), value)).toThrow(SerialisationError);
    for (const value of ['7', 7n, null, undefined]) expect(() => write(number(), value)).toThrow(SerialisationError);
    expect(() => written(int32(), 1.5)).toThrow(/got the number 1.5/);
  });

  it('refuse bytes of another length, and null', () => {
    expect(() => read(number(), Buffer.alloc(4))).toThrow(/float64 has 8 bytes, but there are 4/);
    expect(() => read(int32(), Buffer.alloc(8))).toThrow(DeserialisationError);
    expect(() => read(int64(), Buffer.alloc(0))).toThrow(DeserialisationError);
    expect(() => read(int64(), null)).toThrow(/nullable/);
  });
});

describe('bytes', () => {
  it('passes bytes on without a copy', () => {
    const payload = Buffer.from([1, 2]);
    expect(bytes().deserialise(payload, CONTEXT)).toBe(payload);
    expect(bytes().serialise(payload, CONTEXT)).toBe(payload);
  });

  it('refuses null and what is no bytes', () => {
    expect(() => read(bytes(), null)).toThrow(/nullable/);
    expect(() => write(bytes(), 'text')).toThrow(/a Buffer or Uint8Array is needed, but got string/);
    expect(() => write(bytes(), null)).toThrow(SerialisationError);
  });
});

describe('nullable', () => {
  it('lets null through, and leaves the rest to the serde within', () => {
    const serde = nullable(string());
    expect(serde.serialise(null, CONTEXT)).toBeNull();
    expect(read(serde, null)).toBeNull();
    expect(read(serde, written(serde, 'a'))).toBe('a');
    expect(() => read(serde, Buffer.from([0xff]))).toThrow(DeserialisationError);
    expect(() => write(serde, undefined)).toThrow(SerialisationError);
    expect(serde.name).toBe('nullable(string)');
  });

  it('is the same serde for the same serde', () => {
    expect(nullable(string())).toBe(nullable(string()));
  });
});
