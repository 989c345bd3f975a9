import pg from 'pg';
import type { Pool, PoolClient, PoolConfig } from 'pg';
import type { SinkLog } from '../port.ts';
import { withDeadline } from './deadline.ts';
import { Session, type Timeouts } from './session.ts';
import { DeadlineExceeded, describeError, sqlstateOf } from './sqlstate.ts';

/** A pool of the user (which stays the user's to end), or what to make one from. */
export type PostgresConnection = Pool | PoolConfig | string;

/** How long node-postgres' own connect deadline may take longer than ours. */
const CONNECT_GRACE_MS = 500;

const CHECK_CLIENT = 'SET LOCAL client_connection_check_interval = 1000';

/** The connections of one open sink. */
export class Connections {
  readonly #pool: Pool;
  readonly #owned: boolean;
  readonly #timeouts: Timeouts;
  readonly #sessions = new Set<Session>();
  readonly #running = new Set<Promise<unknown>>();
  readonly #onPoolError: (error: Error) => void;
  #settings: string;
  #closing = false;

  constructor(connection: PostgresConnection, max: number, timeouts: Timeouts, applicationName: string, log: SinkLog) {
    this.#timeouts = timeouts;
    this.#settings = settings(timeouts);
    this.#owned = !isPool(connection);
    this.#pool = isPool(connection) ? connection : ownPool(connection, max, timeouts, applicationName);
    // Idle connections end when the server restarts; unheard, that would end the process.
    this.#onPoolError = (error) => log.warn({ error: describeError(error) }, 'an idle connection to Postgres was lost');
    this.#pool.on('error', this.#onPoolError);
  }

  /** How many transactions can run at the same time. */
  get size(): number {
    return this.#pool.options.max;
  }

  /** Runs `work` on a connection of its own. */
  async use<T>(work: (session: Session) => Promise<T>): Promise<T> {
    const running = this.#use(work);
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  /** One transaction, for what needs no more than that. */
  async transaction<T>(work: (session: Session) => Promise<T>): Promise<T> {
    return await this.use(async (session) => {
      try {
        await session.begin();
        const result = await work(session);
        if (!(await session.commit())) throw new Error('the transaction was rolled back at its COMMIT');
        return result;
      } catch (error) {
        await session.rollback();
        throw error;
      }
    });
  }

  /**
   * Lets the server look now and then, also in the middle of a statement, whether we are still there (Postgres 14 and later, not on all systems):
   * what a killed process had running would otherwise hold the fence until its statement ends.
   */
  async detectDisconnects(): Promise<void> {
    try {
      await this.transaction(async (session) => await session.query(CHECK_CLIENT));
      this.#settings += `; ${CHECK_CLIENT}`;
    } catch (error) {
      if (sqlstateOf(error) === undefined) throw error;
    }
  }

  /** Waits for running transactions, then cuts them off. Never throws. */
  async close(timeoutMs: number): Promise<void> {
    this.#closing = true;
    try {
      await withDeadline(Promise.allSettled(this.#running), timeoutMs, 'the running transactions');
    } catch {
      const reason = new DeadlineExceeded('the sink was closed');
      for (const session of this.#sessions) session.abandon(reason);
    }
    this.#pool.removeListener('error', this.#onPoolError);
    if (!this.#owned) return;
    this.#pool.on('error', () => undefined);
    try {
      await withDeadline(this.#pool.end(), CONNECT_GRACE_MS, 'the end of the pool');
    } catch {
      // Its sockets are destroyed or idle; there is nobody left who would use them.
    }
  }

  async #use<T>(work: (session: Session) => Promise<T>): Promise<T> {
    const session = await this.#checkOut();
    this.#sessions.add(session);
    try {
      return await work(session);
    } finally {
      this.#sessions.delete(session);
      session.release();
    }
  }

  async #checkOut(): Promise<Session> {
    if (this.#closing) throw new DeadlineExceeded('the sink is closed');
    const pending: Promise<PoolClient> = this.#pool.connect();
    try {
      return new Session(
        await withDeadline(pending, this.#timeouts.connectMs + CONNECT_GRACE_MS, 'connect'),
        this.#timeouts,
        this.#settings,
      );
    } catch (error) {
      // A pool of the user may have no deadline: a client that comes late goes straight back.
      if (error instanceof DeadlineExceeded) {
        pending.then(
          (client) => client.release(),
          () => undefined,
        );
      }
      throw error;
    }
  }
}

/** Numbers that were checked, not data: SET takes no parameters. */
function settings({ statementMs, lockMs, idleInTransactionMs }: Timeouts): string {
  return (
    `SET LOCAL statement_timeout = ${statementMs}; SET LOCAL lock_timeout = ${lockMs}; ` +
    `SET LOCAL idle_in_transaction_session_timeout = ${idleInTransactionMs}`
  );
}

function isPool(connection: PostgresConnection): connection is Pool {
  return typeof connection === 'object' && typeof (connection as Partial<Pool>).connect === 'function';
}

function ownPool(connection: PoolConfig | string, max: number, timeouts: Timeouts, applicationName: string): Pool {
  const config: PoolConfig = typeof connection === 'string' ? { connectionString: connection } : connection;
  return new pg.Pool({
    application_name: applicationName,
    keepAlive: true,
    max,
    // Statements of a transaction go out without waiting for each other's answers.
    pipeline: true,
    ...config,
    connectionTimeoutMillis: config.connectionTimeoutMillis ?? timeouts.connectMs,
  });
}
