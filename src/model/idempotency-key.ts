import { isUtf8 } from 'node:buffer';
import { type Headers, textHeader } from './headers.ts';
import type { RecordContext } from './record.ts';

/** The header that carries the sender's idempotency key; compared without regard to case. */
export const IDEMPOTENCY_KEY_HEADER = 'idempotency-key';

/** The sender's key, if it gave one; the last header wins. An empty one counts as none. One that is not text is given in hexadecimal. */
export function idempotencyKeyHeader(headers: Headers): string | undefined {
  for (let i = headers.length - 1; i >= 0; i--) {
    const header = headers[i];
    if (header === undefined || header.value === null || header.value.length === 0) continue;
    if (header.key.length === IDEMPOTENCY_KEY_HEADER.length && header.key.toLowerCase() === IDEMPOTENCY_KEY_HEADER) {
      const bytes = Buffer.from(header.value.buffer, header.value.byteOffset, header.value.byteLength);
      // Read as UTF-8, bytes that are none all become the same character, and different keys (such as binary UUIDs) could become one.
      return isUtf8(bytes) ? bytes.toString('utf8') : `0x${bytes.toString('hex')}`;
    }
  }
  return undefined;
}

/** The headers with this key in place of the one that they had, in any case. */
export function withIdempotencyKey(headers: Headers, key: string): Headers {
  const others = headers.filter((header) => header.key.toLowerCase() !== IDEMPOTENCY_KEY_HEADER);
  return [...others, textHeader(IDEMPOTENCY_KEY_HEADER, key)];
}

/** A record's place in the log: unique in a cluster, and the same at each redelivery, but not when the producer sends again. */
export function coordinatesKey(context: RecordContext): string {
  return `${context.topic}/${context.partition}/${context.offset}`;
}
