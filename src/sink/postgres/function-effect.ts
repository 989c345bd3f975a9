import { SinkFatalError } from '../../model/errors.ts';
import type { SinkRecord } from '../port.ts';
import type { Effect, EffectRun } from './effect.ts';
import type { Session } from './session.ts';

/** What an effect function may do with the transaction that it runs in: query, and nothing that ends it. */
export interface SinkTransaction {
  /** Savepoints are allowed; BEGIN, COMMIT and ROLLBACK are not. Fails once the function has returned. */
  query<R extends Record<string, unknown> = Record<string, unknown>>(
    text: string,
    values?: readonly unknown[],
  ): Promise<{ readonly rows: R[]; readonly rowCount: number | null }>;
}

/**
 * Applies records in offset order; all are fresh. It may be called again with a part of them, after what it did was rolled back, so it must have
 * no effect outside of `tx`. What it returns, if anything, is an array with one result (JSON) per record, kept beside the idempotency key.
 */
export type EffectFunction<K, V> = (
  tx: SinkTransaction,
  records: readonly SinkRecord<K, V>[],
) => Promise<readonly unknown[] | void> | readonly unknown[] | void;

const ENDS_TRANSACTION =
  /^(?:\s|--[^\n]*\n|\/\*.*?\*\/|;)*(?:begin|start\s+transaction|commit|end|abort|prepare\s+transaction|rollback(?!\s+(?:work\s+|transaction\s+)?to\b))\b/is;

export class FunctionEffect<K, V> implements Effect<K, V> {
  readonly pipelined = false;
  readonly #apply: EffectFunction<K, V>;

  constructor(apply: EffectFunction<K, V>) {
    this.#apply = apply;
  }

  async verify(): Promise<void> {
    // What a function will do cannot be known beforehand.
  }

  run(session: Session, records: readonly SinkRecord<K, V>[]): EffectRun<K, V> {
    return { refused: [], done: this.#run(session, records) };
  }

  async #run(session: Session, records: readonly SinkRecord<K, V>[]): Promise<readonly unknown[] | undefined> {
    const results = await inTransaction(session, async (tx) => await this.#apply(tx, records));
    if (results === undefined) return undefined;
    if (!Array.isArray(results) || results.length !== records.length) {
      const got = Array.isArray(results) ? `${results.length} results` : `a ${typeof results}`;
      throw new SinkFatalError(
        `Postgres sink: the effect function was given ${records.length} records and returned ${got}: return one result per record, or nothing`,
      );
    }
    return results;
  }
}

/** Lends the transaction to a function of the user, and makes sure that nothing of it is left running or has failed unnoticed. */
export async function inTransaction<T>(session: Session, work: (tx: SinkTransaction) => Promise<T>): Promise<T> {
  const pending = new Set<Promise<unknown>>();
  let firstFailure: unknown;
  let failed = false;
  let over = false;

  const send = async <R extends Record<string, unknown>>(text: string, values: readonly unknown[] | undefined) => {
    if (over)
      throw new SinkFatalError('Postgres sink: a query of an effect function came after the function had returned: await all of them');
    if (ENDS_TRANSACTION.test(text)) {
      throw new SinkFatalError(`Postgres sink: an effect function may not end its transaction, but sent: ${text.trim().slice(0, 60)}`);
    }
    const answer = session.query<R>(text, values);
    pending.add(answer);
    try {
      return await answer;
    } catch (error) {
      if (!failed) firstFailure = error;
      failed = true;
      throw error;
    } finally {
      pending.delete(answer);
    }
  };

  const query = <R extends Record<string, unknown>>(text: string, values?: readonly unknown[]) => {
    const answer = send<R>(text, values);
    // Awaited or not, its failure is noted above; a function that does not await it must not end the process.
    answer.catch(() => undefined);
    return answer;
  };

  try {
    const result = await work({ query });
    over = true;
    await Promise.allSettled(pending);
    // A failure that was caught has aborted the transaction all the same, unless a savepoint was gone back to.
    if (failed) await session.query('SELECT 1');
    return result;
  } catch (error) {
    over = true;
    await Promise.allSettled(pending);
    // 25P02 only says that an earlier statement failed: that one's error is the cause.
    throw failed && (error as { code?: unknown }).code === '25P02' ? firstFailure : error;
  }
}
