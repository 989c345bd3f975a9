import { isUtf8 } from 'node:buffer';
import { quoteElement } from './array-literal.ts';
import { RefusedValueError } from './refusal.ts';

/** What a column holds, as far as its text form depends on it. */
export type ColumnKind = 'json' | 'jsonb' | 'bytea' | 'other';

/** Postgres stores no NUL character, in text as in jsonb: refuse the record, or leave the character out. */
export type NulPolicy = 'reject' | 'strip';

export interface ColumnShape {
  readonly kind: ColumnKind;
  /** An array column; `kind` is that of its elements. */
  readonly array: boolean;
}

/** The text form of a value for a column, as Postgres reads it; null for null and undefined. Throws RefusedValueError. */
export function columnText(value: unknown, shape: ColumnShape, nul: NulPolicy): string | null {
  if (value === null || value === undefined) return null;
  if (shape.array && Array.isArray(value)) return nestedArray(value, shape.kind, nul);
  return scalarText(value, shape.array ? 'other' : shape.kind, nul);
}

function nestedArray(values: readonly unknown[], kind: ColumnKind, nul: NulPolicy): string {
  const parts = values.map((value) => {
    // An element of a json[] that is an array itself is a JSON value, not one more dimension.
    if (Array.isArray(value) && !isJson(kind)) return nestedArray(value, kind, nul);
    return quoteElement(value === null || value === undefined ? null : scalarText(value, kind, nul));
  });
  return `{${parts.join(',')}}`;
}

function scalarText(value: unknown, kind: ColumnKind, nul: NulPolicy): string | null {
  if (typeof value === 'string') {
    // As in node-postgres, a string for a json column is JSON text already.
    return kind === 'jsonb' ? withoutEscapedNul(withoutNul(value, nul), nul) : withoutNul(value, nul);
  }
  if (typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean') return String(value);
  if (typeof value === 'object' && value !== null) return objectText(value, kind, nul);
  throw new RefusedValueError(`a ${typeof value} cannot be written to a column`);
}

function objectText(value: object, kind: ColumnKind, nul: NulPolicy): string | null {
  if (!isJson(kind)) {
    // UTC, also for columns without a time zone: what is stored must not depend on where the process runs.
    if (value instanceof Date) {
      if (Number.isNaN(value.getTime())) throw new RefusedValueError('an invalid Date cannot be written to a column');
      return dateText(value);
    }
    if (value instanceof Uint8Array) {
      const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
      if (kind === 'bytea') return `\\x${bytes.toString('hex')}`;
      if (!isUtf8(bytes)) throw new RefusedValueError('bytes that are not UTF-8 fit a bytea column only');
      return withoutNul(bytes.toString('utf8'), nul);
    }
  }
  let json: string | undefined;
  try {
    json = JSON.stringify(value);
  } catch (error) {
    throw new RefusedValueError(`the value has no JSON form: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (json === undefined) return null;
  // The type json keeps the escape as it is, and in a text column it is six plain characters.
  return kind === 'jsonb' ? withoutEscapedNul(json, nul) : json;
}

function isJson(kind: ColumnKind): boolean {
  return kind === 'json' || kind === 'jsonb';
}

/** ISO 8601, but with the era where the year does not have four digits: `+010000` and `-000001` are not understood. */
function dateText(date: Date): string {
  const iso = date.toISOString();
  if (iso.length === 24) return iso;
  const year = date.getUTCFullYear();
  const rest = iso.slice(7);
  return year > 0 ? `${year}${rest}` : `${String(1 - year).padStart(4, '0')}${rest} BC`;
}

function withoutNul(text: string, nul: NulPolicy): string {
  if (!text.includes('\0')) return text;
  if (nul === 'strip') return text.replaceAll('\0', '');
  throw new RefusedValueError('the text has a NUL character (U+0000), which Postgres cannot store', '22021');
}

/** A backslash before the escape that is itself escaped belongs to the text: only an odd one makes `\u0000`. */
const ESCAPED_NUL = /(?<!\\)((?:\\\\)*)\\u0000/g;

function withoutEscapedNul(json: string, nul: NulPolicy): string {
  if (!json.includes('\\u0000')) return json;
  // Matches do not overlap, and the look-behind of the second of two in a row sees the end of the first: it is no backslash.
  const stripped = json.replace(ESCAPED_NUL, '$1');
  if (stripped === json || nul === 'strip') return stripped;
  throw new RefusedValueError('the JSON has a NUL character (\\u0000), which Postgres cannot store as jsonb', '22P05');
}
