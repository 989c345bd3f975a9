import { SinkFatalError, SinkFencedError, SinkRetriableError } from '../../model/errors.ts';

/**
 * What an error calls for.
 * - `refuse`: the content of a row is at fault; the row is isolated and refused alone.
 * - `split`: two rows of one statement are in each other's way; the halves work.
 * - `retry`: the server or the way to it; the whole transaction is done again later.
 * - `fatal`: no retry mends it.
 */
export type Remedy = 'refuse' | 'split' | 'retry' | 'fatal';

export type Classify = (error: unknown) => Remedy;

/** Thrown on our side of the connection, when an answer does not come in time. */
export class DeadlineExceeded extends Error {}

/** The five characters of an SQLSTATE, if the server gave one. */
export function sqlstateOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null | undefined)?.code;
  // A Node error code such as EPIPE has five characters as well, but only the server's errors have a severity.
  const fromServer = typeof (error as { severity?: unknown } | null | undefined)?.severity === 'string';
  return fromServer && typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) ? code : undefined;
}

const BY_CODE: ReadonlyMap<string, Remedy> = new Map([
  ['21000', 'split'], // ON CONFLICT DO UPDATE met one row twice
  ['54000', 'refuse'], // a value is too large for an index row
  ['44000', 'refuse'], // WITH CHECK OPTION of a view
  ['25006', 'retry'], // read-only: a standby before its promotion, or a full disk
  ['25P03', 'retry'], // idle_in_transaction_session_timeout
  ['25P04', 'retry'], // transaction_timeout
  ['55006', 'retry'], // object in use
  ['55P03', 'retry'], // lock_timeout
  ['XX000', 'retry'], // such as 'tuple concurrently updated'
]);

const BY_CLASS: ReadonlyMap<string, Remedy> = new Map([
  ['22', 'refuse'], // data exception
  ['23', 'refuse'], // integrity constraint violation
  ['P0', 'refuse'], // RAISE in a trigger or function of the user
  ['08', 'retry'], // connection
  ['40', 'retry'], // deadlock, serialisation failure; also on a second unique index, however well the keys are sorted
  ['53', 'retry'], // disk full, too many connections, out of memory
  ['57', 'retry'], // shutdown, start-up, statement_timeout
  ['58', 'retry'], // input and output of the server
]);

const NETWORK_CODES: ReadonlySet<string> = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'EHOSTDOWN',
  'ENETUNREACH',
  'ENETDOWN',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ENOENT', // the Unix socket of a server that is down
  'EMFILE',
]);

/** node-postgres reports these without a code. */
const NETWORK_MESSAGES =
  /^(Connection terminated|Client was closed|Client has encountered a connection error|timeout e|Query read timeout)/;

/**
 * The remedy for whatever was thrown while a batch was applied. An error that is neither the server's nor the network's was thrown by a
 * function of the user, for what a record contains.
 */
export function remedyOf(error: unknown): Remedy {
  const sqlstate = sqlstateOf(error);
  if (sqlstate !== undefined) return BY_CODE.get(sqlstate) ?? BY_CLASS.get(sqlstate.slice(0, 2)) ?? 'fatal';
  if (error instanceof SinkRetriableError || error instanceof DeadlineExceeded) return 'retry';
  if (error instanceof SinkFatalError || error instanceof SinkFencedError) return 'fatal';
  return isNetworkError(error) ? 'retry' : 'refuse';
}

function isNetworkError(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof AggregateError) return error.errors.some(isNetworkError);
  const { code } = error as { code?: unknown };
  if (typeof code === 'string' && NETWORK_CODES.has(code)) return true;
  return NETWORK_MESSAGES.test(error.message);
}

/** `ERROR 42P01: relation "x" does not exist (table x)`, as far as it is known. */
export function describeError(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return error.errors.map(describeError).join('; ');
  if (!(error instanceof Error)) return String(error);
  const sqlstate = sqlstateOf(error);
  if (sqlstate === undefined) return error.message;
  const { detail, table, column, constraint } = error as { detail?: string; table?: string; column?: string; constraint?: string };
  const where = [
    table === undefined ? undefined : `table ${table}`,
    column === undefined ? undefined : `column ${column}`,
    constraint === undefined ? undefined : `constraint ${constraint}`,
    detail,
  ].filter((part) => part !== undefined);
  return `${error.message} (SQLSTATE ${sqlstate}${where.length > 0 ? `, ${where.join(', ')}` : ''})`;
}

/** The port's error for what was thrown outside of a record's effect. `doing`: a phrase such as `claiming orders/3`. */
export function toSinkError(
  error: unknown,
  doing: string,
  classify: Classify = remedyOf,
): SinkRetriableError | SinkFatalError | SinkFencedError {
  if (error instanceof SinkRetriableError || error instanceof SinkFatalError || error instanceof SinkFencedError) return error;
  const message = `Postgres sink, ${doing}: ${describeError(error)}`;
  if (classify(error) === 'retry') return new SinkRetriableError(message, { cause: error });
  return new SinkFatalError(message + adviceFor(error), { cause: error });
}

function adviceFor(error: unknown): string {
  const sqlstate = sqlstateOf(error) ?? '';
  if (sqlstate.startsWith('28')) return '. Check user, password and pg_hba.conf';
  if (sqlstate.startsWith('3D')) return '. Create the database, or correct the connection string';
  if (sqlstate === '42501') return '. Grant the missing privilege to the user of the sink';
  if (sqlstate.startsWith('42')) return '. The schema of the database does not fit the sink: correct one of them, then start again';
  return '';
}
