import { SerialisationError } from '../model/errors.ts';
import type { Serde } from './serde.ts';
import { decodeText, refuseNull } from './text.ts';

/**
 * UTF-8 text, as Kafka's `StringSerializer`. Both directions are strict: bytes that are not UTF-8, and strings with half of a surrogate pair
 * (which UTF-8 cannot express), are errors instead of question marks.
 *
 * ```ts run
 * builder.stream('lines', { value: string() }).mapValues((line) => line.toUpperCase());
 * ```
 */
export function string(): Serde<string> {
  return STRING;
}

const STRING: Serde<string> = Object.freeze({
  name: 'string',
  serialise(value: string) {
    if (typeof value !== 'string') {
      throw new SerialisationError(
        `a string is needed, but got ${value === null ? 'null (use nullable(string()) to write nulls)' : typeof value}`,
      );
    }
    if (!isWellFormed(value)) throw new SerialisationError('the string has half of a surrogate pair, which UTF-8 cannot express');
    return value;
  },
  deserialise(payload: Buffer | null) {
    refuseNull(payload, 'string');
    return decodeText(payload);
  },
  deserialiseText(text: string) {
    return text;
  },
});

/** ES2024's `String.prototype.isWellFormed`, which Node 20 has and its type library lacks. */
function isWellFormed(text: string): boolean {
  return (text as string & { isWellFormed(): boolean }).isWellFormed();
}
