import { isUtf8 } from 'node:buffer';
import { DeserialisationError } from '../model/errors.ts';

/** Stands in text for bytes that are no UTF-8, or for itself. */
export const REPLACEMENT = '\uFFFD';

/**
 * Decodes UTF-8 strictly. Bytes are looked at a second time only where the text has the character that stands for invalid ones, which is much
 * cheaper than to check all of them first.
 */
export function decodeText(payload: Buffer): string {
  const text = payload.toString('utf8');
  if (text.includes(REPLACEMENT) && !isUtf8(payload)) throw new DeserialisationError('the bytes are not valid UTF-8');
  return text;
}

/** For a payload that must not be null. */
export function refuseNull(payload: Buffer | null, serde: string): asserts payload is Buffer {
  if (payload === null) {
    throw new DeserialisationError(
      `null cannot be read as ${serde}: where tombstones or records without a key are expected, use nullable(...)`,
    );
  }
}
