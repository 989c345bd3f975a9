import { isUtf8 } from 'node:buffer';
import type { Headers } from '../../model/headers.ts';
import type { RecordContext } from '../../model/record.ts';
import type { RefusedRecord, SourceBytes } from '../port.ts';
import { arrayLiteral } from './array-literal.ts';
import { quoteIdentifier } from './identifier.ts';
import { idempotencyKeyText } from './idempotency-key-text.ts';
import type { Refusal } from './refusal.ts';
import type { Session } from './session.ts';

/** A record that was refused, with all that is needed to see why and to send it again. */
export interface DeadLetter {
  readonly context: RecordContext;
  readonly idempotencyKey: string;
  readonly source: SourceBytes;
  readonly sqlstate: string | null;
  readonly message: string;
}

export function deadLetterOf(refused: RefusedRecord): DeadLetter {
  const { context, idempotencyKey, source, reason } = refused;
  return { context, idempotencyKey, source, sqlstate: null, message: reason };
}

/** Without the source's bytes, what is left of the record is kept as JSON. */
export function deadLetterOfRefusal<K, V>({ record, sqlstate, message }: Refusal<K, V>): DeadLetter {
  const source = record.source ?? { key: jsonBytes(record.key), value: jsonBytes(record.value) };
  return { context: record.context, idempotencyKey: record.idempotencyKey, source, sqlstate, message };
}

/** The table of refused records. Written in the transaction of the batch, so that a record is either applied or here, once. */
export class DeadLetters {
  readonly #insert: string;
  readonly #owner: readonly [application: string, stage: string];

  constructor(schema: string, application: string, stage: string) {
    this.#owner = [application, stage];
    // A mode without a fence may come to the same record again: its row is kept, not doubled. The timestamp tells a record from one at the same
    // offset of a topic that was deleted and made anew.
    this.#insert =
      `INSERT INTO ${quoteIdentifier(schema)}.dead_letters AS d (application, stage, topic, partition, "offset", record_timestamp, idempotency_key, key, value, headers, sqlstate, message) ` +
      `SELECT $1, $2, u.* FROM unnest($3::text[], $4::integer[], $5::bigint[], $6::bigint[], $7::text[], $8::bytea[], $9::bytea[], $10::jsonb[], $11::text[], $12::text[]) AS u ` +
      `ON CONFLICT (application, stage, topic, partition, "offset", idempotency_key, record_timestamp) ` +
      `DO UPDATE SET attempts = d.attempts + 1, failed_at = now(), sqlstate = EXCLUDED.sqlstate, message = EXCLUDED.message`;
  }

  async insert(session: Session, letters: readonly DeadLetter[]): Promise<void> {
    // The same record with the same key twice, as a function of the user may make it, is one letter.
    const distinct = new Map(letters.map((letter) => [`${letter.context.offset}/${idempotencyKeyText(letter.idempotencyKey)}`, letter]));
    const rows = [...distinct.values()];
    const column = (value: (letter: DeadLetter) => string | null): string => arrayLiteral(rows.map(value));
    await session.query(this.#insert, [
      ...this.#owner,
      column(({ context }) => context.topic),
      column(({ context }) => String(context.partition)),
      column(({ context }) => String(context.offset)),
      column(({ context }) => String(context.timestamp)),
      column(({ idempotencyKey }) => idempotencyKeyText(idempotencyKey)),
      column(({ source }) => bytea(source.key)),
      column(({ source }) => bytea(source.value)),
      column(({ context }) => headersJson(context.headers)),
      column(({ sqlstate }) => sqlstate),
      column(({ message }) => message.replaceAll('\0', '\uFFFD')),
    ]);
  }
}

function bytea(bytes: Buffer | null): string | null {
  return bytes === null ? null : `\\x${bytes.toString('hex')}`;
}

function jsonBytes(value: unknown): Buffer | null {
  if (value === null || value === undefined) return null;
  try {
    return Buffer.from(
      JSON.stringify(value, (_key, part: unknown) => (typeof part === 'bigint' ? String(part) : part)) ?? `(${typeof value})`,
    );
  } catch (error) {
    return Buffer.from(`(no JSON form: ${error instanceof Error ? error.message : typeof value})`);
  }
}

/** `[{ "key": "source", "text": "gateway" }, { "key": "trace", "base64": "AP8=" }]`, in Kafka's order: jsonb holds neither bytes nor NUL. */
function headersJson(headers: Headers): string {
  return JSON.stringify(
    headers.map(({ key, value }) => {
      const name = key.replaceAll('\0', '\uFFFD');
      if (value === null) return { key: name, text: null };
      const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
      return isUtf8(bytes) && !bytes.includes(0)
        ? { key: name, text: bytes.toString('utf8') }
        : { key: name, base64: bytes.toString('base64') };
    }),
  );
}
