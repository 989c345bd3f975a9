import type { PoolClient, QueryResult } from 'pg';
import { withDeadline } from './deadline.ts';

/** Deadlines in milliseconds; see PostgresSinkOptions. */
export interface Timeouts {
  readonly connectMs: number;
  readonly statementMs: number;
  readonly lockMs: number;
  readonly idleInTransactionMs: number;
}

/** The server reports its own statement_timeout first; ours is for the answer that never comes. */
const ANSWER_GRACE_MS = 3_000;
/** After a lost connection a ROLLBACK may never be answered (node-postgres#1454); not waiting costs no more than a new connection. */
const ROLLBACK_DEADLINE_MS = 3_000;

type Row = Record<string, unknown>;

/** One checked-out connection. Every answer has a deadline, and what has missed one is never used again. */
export class Session {
  readonly #client: PoolClient;
  readonly #timeouts: Timeouts;
  readonly #settings: string;
  readonly #onError = (error: Error): void => void (this.#broken ??= error);
  #broken: Error | undefined;
  #inTransaction = false;
  #released = false;
  /** Settles when everything that was sent is answered. */
  #answeredSoFar: Promise<unknown> = Promise.resolve();

  /** `settings`: SQL that follows each BEGIN. */
  constructor(client: PoolClient, timeouts: Timeouts, settings: string) {
    this.#client = client;
    this.#timeouts = timeouts;
    this.#settings = settings;
    // The pool listens only while a client is idle: without this one, a lost connection would end the process.
    client.on('error', this.#onError);
  }

  /** Sends at once, behind what is already sent, where the client pipelines; else when that is answered. */
  async query<R extends Row = Row>(text: string, values?: readonly unknown[]): Promise<QueryResult<R>> {
    return await this.#send<R>(text, values, this.#timeouts.statementMs + ANSWER_GRACE_MS);
  }

  /**
   * READ COMMITTED whatever the default is: under REPEATABLE READ an ON CONFLICT DO NOTHING that meets a newer row fails with 40001. The
   * timeouts are set per transaction, since a pool of the user or a connection pooler need not keep them per connection.
   */
  async begin(): Promise<void> {
    this.#inTransaction = true;
    await this.query(`BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; ${this.#settings}`);
  }

  /**
   * Whether the server has committed. An aborted transaction answers COMMIT with ROLLBACK, without an error. Whatever is thrown leaves it open
   * whether it did: the COMMIT is never repeated, since on a new connection it would succeed with nothing in it.
   */
  async commit(): Promise<boolean> {
    const answer = await this.query('COMMIT');
    this.#inTransaction = false;
    return answer.command === 'COMMIT';
  }

  async rollback(): Promise<void> {
    if (this.#broken !== undefined || !this.#inTransaction) return;
    try {
      await this.#send('ROLLBACK', undefined, ROLLBACK_DEADLINE_MS);
      this.#inTransaction = false;
    } catch (error) {
      this.#broken ??= error as Error;
    }
  }

  /** Back into the pool, or out of it for good if it is broken or in a transaction. */
  release(): void {
    if (this.#released) return;
    this.#released = true;
    const reusable = this.#broken === undefined && !this.#inTransaction;
    if (!reusable) this.#destroy();
    // The listener of the pool takes over; ours stays on a client that is thrown away, whose errors come late.
    if (reusable) this.#client.removeListener('error', this.#onError);
    this.#client.release(!reusable);
  }

  /** Makes whoever waits for an answer fail. */
  abandon(reason: Error): void {
    this.#broken ??= reason;
    this.#destroy();
  }

  async #send<R extends Row>(text: string, values: readonly unknown[] | undefined, deadlineMs: number): Promise<QueryResult<R>> {
    const answer = this.#client.pipeline ? this.#dispatch<R>(text, values) : this.#dispatchLater<R>(text, values);
    try {
      return await withDeadline(answer, deadlineMs, firstWords(text));
    } catch (error) {
      if (error instanceof Error && typeof (error as { severity?: unknown }).severity !== 'string') this.#broken ??= error;
      if (this.#broken !== undefined) this.#destroy();
      throw error;
    }
  }

  async #dispatchLater<R extends Row>(text: string, values: readonly unknown[] | undefined): Promise<QueryResult<R>> {
    const before = this.#answeredSoFar;
    const answer = before.then(async () => await this.#dispatch<R>(text, values));
    this.#answeredSoFar = answer.catch(() => undefined);
    return await answer;
  }

  async #dispatch<R extends Row>(text: string, values: readonly unknown[] | undefined): Promise<QueryResult<R>> {
    if (this.#broken !== undefined) throw this.#broken;
    return await (values === undefined ? this.#client.query<R>(text) : this.#client.query<R>(text, values as unknown[]));
  }

  #destroy(): void {
    // `end` alone would say goodbye and wait for an answer on a connection that may be dead.
    const { connection } = this.#client as unknown as { connection?: { stream?: { destroy?: () => void } } };
    connection?.stream?.destroy?.();
  }
}

function firstWords(text: string): string {
  return text.trim().split(/\s+/, 3).join(' ');
}
