import fc from 'fast-check';
import pgTypes from 'pg';
import { describe, expect, it } from 'vitest';
import { arrayLiteral } from '../../../../src/sink/postgres/array-literal.ts';
import { columnText, type ColumnShape } from '../../../../src/sink/postgres/column-value.ts';

const TEXT: ColumnShape = { kind: 'other', array: false };
const JSONB: ColumnShape = { kind: 'jsonb', array: false };
const JSON_COLUMN: ColumnShape = { kind: 'json', array: false };
const BYTEA: ColumnShape = { kind: 'bytea', array: false };
const TEXT_ARRAY: ColumnShape = { kind: 'other', array: true };

/** node-postgres' own reader of text[], oid 1009. */
const parseTextArray = (pgTypes.types.getTypeParser as (oid: number) => (text: string) => (string | null)[])(1009);

describe('array literals', () => {
  it('are read back as they were written, whatever characters they hold', () => {
    const element = fc.option(fc.oneof(fc.string(), fc.constantFrom('', 'NULL', 'null', '"', '\\', '{', '}', ',', ' ', '\n')), {
      nil: null,
    });
    fc.assert(
      fc.property(fc.array(element), (elements) => {
        expect(parseTextArray(arrayLiteral(elements))).toEqual(elements);
      }),
    );
  });
});

describe('the text form of a value', () => {
  it.each([
    [null, null],
    [undefined, null],
    ['text', 'text'],
    ['', ''],
    [1.5, '1.5'],
    [Number.NaN, 'NaN'],
    [-Infinity, '-Infinity'],
    [2n ** 63n, '9223372036854775808'],
    [true, 'true'],
    [{ a: 1 }, '{"a":1}'],
    [Buffer.from('bytes'), 'bytes'],
    [new Date('2024-02-29T12:00:00.5Z'), '2024-02-29T12:00:00.500Z'],
    [new Date(Date.UTC(12_345, 0, 1)), '12345-01-01T00:00:00.000Z'],
    [new Date('-000044-03-15T00:00:00Z'), '0045-03-15T00:00:00.000Z BC'],
    [new Date('0000-01-01T00:00:00Z'), '0000-01-01T00:00:00.000Z'],
  ])('of %s is %j', (value, text) => {
    expect(columnText(value, TEXT, 'reject')).toBe(text);
  });

  it('for json: objects are written as JSON, and a string is JSON text already, as in node-postgres', () => {
    expect(columnText([1, 'two'], JSONB, 'reject')).toBe('[1,"two"]');
    expect(columnText('{"a":1}', JSONB, 'reject')).toBe('{"a":1}');
    expect(columnText(new Date(0), JSONB, 'reject')).toBe('"1970-01-01T00:00:00.000Z"');
    expect(columnText(5, JSONB, 'reject')).toBe('5');
  });

  it('for bytea is hexadecimal', () => {
    expect(columnText(Buffer.from([0, 255]), BYTEA, 'reject')).toBe('\\x00ff');
    expect(columnText(new Uint8Array([1, 2, 3]).subarray(1), BYTEA, 'reject')).toBe('\\x0203');
  });

  it('for arrays keeps dimensions, quotes and NULLs', () => {
    expect(
      columnText(
        [
          ['a', 'b"'],
          [null, 'NULL'],
        ],
        TEXT_ARRAY,
        'reject',
      ),
    ).toBe('{{"a","b\\""},{NULL,"NULL"}}');
    expect(columnText([], TEXT_ARRAY, 'reject')).toBe('{}');
    expect(columnText('{1,2}', TEXT_ARRAY, 'reject')).toBe('{1,2}');
    expect(columnText([{ a: [1] }, [2]], { kind: 'jsonb', array: true }, 'reject')).toBe('{"{\\"a\\":[1]}","[2]"}');
  });

  it('does not exist for what is no value', () => {
    for (const value of [() => 1, Symbol('s'), new Date(Number.NaN), Buffer.from([0xff])]) {
      expect(() => columnText(value, TEXT, 'reject')).toThrow(/column/);
    }
    const cycle: Record<string, unknown> = {};
    cycle['self'] = cycle;
    expect(() => columnText(cycle, JSONB, 'reject')).toThrow(/no JSON form/);
    expect(() => columnText({ big: 1n }, JSONB, 'reject')).toThrow(/no JSON form/);
  });
});

describe('NUL characters (node-postgres#2080)', () => {
  it('are refused with the SQLSTATE that the server would give', () => {
    expect(() => columnText('a\0b', TEXT, 'reject')).toThrow(expect.objectContaining({ sqlstate: '22021' }));
    expect(() => columnText({ a: '\0' }, JSONB, 'reject')).toThrow(expect.objectContaining({ sqlstate: '22P05' }));
    expect(() => columnText('{"a":"\\u0000"}', JSONB, 'reject')).toThrow(expect.objectContaining({ sqlstate: '22P05' }));
    expect(() => columnText(['x\0'], TEXT_ARRAY, 'reject')).toThrow(expect.objectContaining({ sqlstate: '22021' }));
    expect(() => columnText(Buffer.from('a\0'), TEXT, 'reject')).toThrow(expect.objectContaining({ sqlstate: '22021' }));
  });

  it('stay where they can be stored: as an escape in json, and as bytes', () => {
    expect(columnText({ a: '\0' }, JSON_COLUMN, 'reject')).toBe('{"a":"\\u0000"}');
    expect(columnText(Buffer.from([0]), BYTEA, 'reject')).toBe('\\x00');
  });

  it('are left out where that is wished, and nothing else is', () => {
    const value = fc.string({ unit: fc.constantFrom('\0', '\\', 'u', '0', '"', 'a', 'u0000', '\\u0000', 'ü') });
    fc.assert(
      fc.property(value, (text) => {
        const clean = text.replaceAll('\0', '');
        expect(columnText(text, TEXT, 'strip')).toBe(clean);
        expect(JSON.parse(columnText({ text: [text] }, JSONB, 'strip') ?? '')).toEqual({ text: [clean] });
      }),
      { numRuns: 500 },
    );
  });
});
