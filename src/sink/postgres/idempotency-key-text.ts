import { createHash } from 'node:crypto';

/** A row of a btree index holds about 2,700 bytes, and the consumer's name stands beside the key. */
const MAX_KEY_BYTES = 1_024;
const PREFIX_CHARACTERS = 64;
const LONE_SURROGATE = /\p{Surrogate}/u;

/**
 * The key as it is stored. What Postgres cannot store or index (NUL characters, lone surrogates, long keys) is told apart by its digest
 * instead of being cut or replaced, which could make two keys one.
 */
export function idempotencyKeyText(key: string): string {
  const storable = key.length * 3 <= MAX_KEY_BYTES || Buffer.byteLength(key) <= MAX_KEY_BYTES;
  if (storable && !key.includes('\0') && !LONE_SURROGATE.test(key)) return key;
  const prefix = key.slice(0, PREFIX_CHARACTERS).replaceAll(/[\0\p{Surrogate}]/gu, '');
  return `${prefix}#sha256:${createHash('sha256').update(key, 'utf16le').digest('hex')}`;
}
