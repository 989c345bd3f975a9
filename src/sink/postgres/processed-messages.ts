import { arrayLiteral } from './array-literal.ts';
import { columnText, type NulPolicy } from './column-value.ts';
import { quoteIdentifier } from './identifier.ts';
import type { Session } from './session.ts';

/** The idempotency keys whose effect is applied, with its result if it has one. */
export class ProcessedMessages {
  /** Keys of one consumer say nothing about those of another, who may get the same message for another purpose. */
  readonly #consumer: string;
  readonly #insert: string;
  readonly #delete: string;
  readonly #store: string;
  readonly #results: string;

  constructor(schema: string, consumer: string) {
    const table = `${quoteIdentifier(schema)}.processed_messages`;
    this.#consumer = consumer;
    this.#insert =
      `INSERT INTO ${table} (consumer, idempotency_key) SELECT $1, k FROM unnest($2::text[]) AS k ` +
      `ON CONFLICT (consumer, idempotency_key) DO NOTHING RETURNING idempotency_key`;
    this.#delete = `DELETE FROM ${table} WHERE consumer = $1 AND idempotency_key = ANY ($2::text[])`;
    this.#store =
      `UPDATE ${table} AS p SET result = u.result::jsonb FROM unnest($2::text[], $3::text[]) AS u(k, result) ` +
      `WHERE p.consumer = $1 AND p.idempotency_key = u.k`;
    this.#results = `SELECT idempotency_key, result FROM ${table} WHERE consumer = $1 AND idempotency_key = ANY ($2::text[])`;
  }

  /**
   * Records these keys, each at most once in the list, and gives back those that were not there. Waits for a transaction that has inserted one of
   * them and is still running. In one order for all writers, which no collation decides, so that two of them do not deadlock.
   */
  async insert(session: Session, keys: readonly string[]): Promise<ReadonlySet<string>> {
    if (keys.length === 0) return new Set();
    const { rows } = await session.query<{ idempotency_key: string }>(this.#insert, [this.#consumer, arrayLiteral(keys.toSorted())]);
    return new Set(rows.map((row) => row.idempotency_key));
  }

  async delete(session: Session, keys: readonly string[]): Promise<void> {
    await session.query(this.#delete, [this.#consumer, arrayLiteral(keys)]);
  }

  /** Keeps results beside their keys; undefined is none. */
  async storeResults(session: Session, keys: readonly string[], results: readonly unknown[], nul: NulPolicy): Promise<void> {
    const kept: string[] = [];
    const texts: (string | null)[] = [];
    for (const [i, key] of keys.entries()) {
      const result = results[i];
      if (result === undefined) continue;
      kept.push(key);
      // Here a string is a value, not JSON text: it was made by code, not read from somewhere.
      texts.push(columnText(typeof result === 'string' ? JSON.stringify(result) : result, { kind: 'jsonb', array: false }, nul));
    }
    if (kept.length > 0) await session.query(this.#store, [this.#consumer, arrayLiteral(kept), arrayLiteral(texts)]);
  }

  async results(session: Session, keys: readonly string[]): Promise<ReadonlyMap<string, unknown>> {
    const { rows } = await session.query<{ idempotency_key: string; result: unknown }>(this.#results, [this.#consumer, arrayLiteral(keys)]);
    return new Map(rows.map((row) => [row.idempotency_key, row.result]));
  }
}
