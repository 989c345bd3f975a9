import { ConfigurationError } from '../../model/errors.ts';
import { requireKnownOptions } from '../../model/known-options.ts';
import type { RecordContext } from '../../model/record.ts';
import type { SinkMode } from '../port.ts';
import type { OnDuplicates } from './batch-transaction.ts';
import type { NulPolicy } from './column-value.ts';
import type { PostgresConnection } from './connections.ts';
import type { EffectFunction } from './function-effect.ts';
import { quoteIdentifier } from './identifier.ts';
import { InsertRows } from './insert-effect.ts';
import type { Timeouts } from './session.ts';
import { remedyOf, type Classify } from './sqlstate.ts';

export interface PostgresSinkOptions<K, V> {
  /** A connection string, a node-postgres configuration, or a Pool, which stays yours: listen to its errors and end it yourself. */
  readonly connection: PostgresConnection;
  /** What is done with each record: `insert({ table, columns })`, or a function that runs inside the transaction. */
  readonly effect: InsertRows<K, V> | EffectFunction<K, V>;
  /** Called after the effect, in the same transaction, with the records whose key was there already. Needs a mode with keys. */
  readonly onDuplicates?: OnDuplicates<K, V>;
  /**
   * Default `exactly-once`: the position and the idempotency keys are written in the transaction of the effect. `fence-only` leaves out the
   * keys, `key-only` the position; `at-least-once` and `at-most-once` have neither.
   */
  readonly mode?: SinkMode;
  /** The idempotency key of a record. Default, also where it gives null: the header `idempotency-key`, else the record's coordinates. */
  readonly idempotencyKey?: (value: V, key: K, context: RecordContext) => string | null | undefined;
  /** The schema of Tidemark's own tables. Give each Kafka cluster its own: topics of the same name would share positions. Default `tidemark`. */
  readonly schema?: string;
  /** The most records in one transaction. Default 500. */
  readonly maxBatchRecords?: number;
  /** The most transactions at the same time; the size of the pool if it is not given as a Pool. Default 4. */
  readonly maxConnections?: number;
  /**
   * Where a record goes that Postgres refuses for its content (SQLSTATE classes 22 and 23, RAISE in a trigger) or whose mapping throws. `table`
   * (default): to `<schema>.dead_letters`, in the same transaction. `fail`: the stage stops.
   */
  readonly deadLetters?: 'table' | 'fail';
  /** What happens to U+0000 in text and jsonb values of a column mapping. Default `reject`: the record is refused. */
  readonly nulCharacters?: NulPolicy;
  /** Overrides what an error calls for: `refuse` the record, `retry` the transaction, or stop the stage (`fatal`). undefined: as built in. */
  readonly classify?: (error: unknown) => 'refuse' | 'retry' | 'fatal' | undefined;
  /** Longest wait for a connection. Default 10 s. */
  readonly connectTimeoutMs?: number;
  /** Longest run of one statement (`statement_timeout`); without an answer for 3 s longer, the connection is given up. Default 30 s. */
  readonly statementTimeoutMs?: number;
  /** Longest wait for a lock (`lock_timeout`). Default 10 s. */
  readonly lockTimeoutMs?: number;
  /**
   * After this long without a statement the server ends the transaction, so that a process that is stopped in the middle of one does not keep its
   * successor waiting for the fence. Default 15 s.
   */
  readonly idleInTransactionTimeoutMs?: number;
}

/** The options with their defaults, checked. */
export interface PostgresSinkSettings<K, V> {
  readonly connection: PostgresConnection;
  readonly effect: InsertRows<K, V> | EffectFunction<K, V>;
  readonly onDuplicates: OnDuplicates<K, V> | undefined;
  readonly mode: SinkMode;
  readonly schema: string;
  readonly maxBatchRecords: number;
  readonly maxConnections: number;
  readonly deadLetters: 'table' | 'fail';
  readonly nulCharacters: NulPolicy;
  readonly classify: Classify;
  readonly timeouts: Timeouts;
}

/** The compiler sees to it that none is missing. */
const OPTIONS: Readonly<Record<keyof PostgresSinkOptions<never, never>, true>> = {
  connection: true,
  effect: true,
  onDuplicates: true,
  mode: true,
  idempotencyKey: true,
  schema: true,
  maxBatchRecords: true,
  maxConnections: true,
  deadLetters: true,
  nulCharacters: true,
  classify: true,
  connectTimeoutMs: true,
  statementTimeoutMs: true,
  lockTimeoutMs: true,
  idleInTransactionTimeoutMs: true,
};

const MODES: readonly SinkMode[] = ['at-most-once', 'at-least-once', 'exactly-once', 'key-only', 'fence-only'];

export function hasFence(mode: SinkMode): boolean {
  return mode === 'exactly-once' || mode === 'fence-only';
}

export function hasKeys(mode: SinkMode): boolean {
  return mode === 'exactly-once' || mode === 'key-only';
}

export function compileOptions<K, V>(options: PostgresSinkOptions<K, V>): PostgresSinkSettings<K, V> {
  requireKnownOptions('postgresSink', options, OPTIONS);
  const mode = oneOf('mode', options.mode ?? 'exactly-once', MODES);
  const schema = options.schema ?? 'tidemark';
  quoteIdentifier(schema);
  if (typeof options.connection !== 'string' && (typeof options.connection !== 'object' || options.connection === null)) {
    throw new ConfigurationError('postgresSink: connection must be a connection string, a configuration of node-postgres, or a Pool');
  }
  if (!(options.effect instanceof InsertRows) && typeof options.effect !== 'function') {
    throw new ConfigurationError('postgresSink: effect must be insert({ ... }) or a function (tx, records) => ...');
  }
  if (options.onDuplicates !== undefined && !hasKeys(mode)) {
    throw new ConfigurationError(
      `postgresSink: onDuplicates needs idempotency keys, which mode '${mode}' does not keep: use 'exactly-once' or 'key-only'`,
    );
  }
  const { classify } = options;
  return {
    connection: options.connection,
    effect: options.effect,
    onDuplicates: options.onDuplicates,
    mode,
    schema,
    maxBatchRecords: wholeNumber('maxBatchRecords', options.maxBatchRecords ?? 500),
    maxConnections: wholeNumber('maxConnections', options.maxConnections ?? 4),
    deadLetters: oneOf('deadLetters', options.deadLetters ?? 'table', ['table', 'fail']),
    nulCharacters: oneOf('nulCharacters', options.nulCharacters ?? 'reject', ['reject', 'strip']),
    classify: classify === undefined ? remedyOf : (error) => classify(error) ?? remedyOf(error),
    timeouts: {
      connectMs: wholeNumber('connectTimeoutMs', options.connectTimeoutMs ?? 10_000),
      statementMs: wholeNumber('statementTimeoutMs', options.statementTimeoutMs ?? 30_000),
      lockMs: wholeNumber('lockTimeoutMs', options.lockTimeoutMs ?? 10_000),
      idleInTransactionMs: wholeNumber('idleInTransactionTimeoutMs', options.idleInTransactionTimeoutMs ?? 15_000),
    },
  };
}

function wholeNumber(name: string, value: number): number {
  // Becomes part of SET LOCAL and of setTimeout, both of which end at 2^31 - 1.
  if (Number.isInteger(value) && value > 0 && value <= 0x7fff_ffff) return value;
  throw new ConfigurationError(`postgresSink: ${name} must be a whole number above 0, but is ${String(value)}`);
}

function oneOf<T extends string>(name: string, value: T, allowed: readonly T[]): T {
  if (allowed.includes(value)) return value;
  throw new ConfigurationError(`postgresSink: ${name} must be one of ${allowed.join(', ')}, but is '${value}'`);
}
