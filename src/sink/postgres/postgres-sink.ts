import { SinkFatalError } from '../../model/errors.ts';
import type { Sink, SinkContext, SinkMode, SinkWriter } from '../port.ts';
import { BatchTransaction } from './batch-transaction.ts';
import { Connections } from './connections.ts';
import { DeadLetters } from './dead-letters.ts';
import type { Effect } from './effect.ts';
import { Fences } from './fences.ts';
import { FunctionEffect } from './function-effect.ts';
import { InsertEffect, InsertRows } from './insert-effect.ts';
import { migrate } from './migrations.ts';
import { compileOptions, hasFence, hasKeys, type PostgresSinkOptions, type PostgresSinkSettings } from './options.ts';
import { PostgresWriter } from './postgres-writer.ts';
import { ProcessedMessages } from './processed-messages.ts';
import { toSinkError } from './sqlstate.ts';

/** True only as far as the effect stays inside of the transaction, which is all that the sink lends to it. */
const GUARANTEES: Readonly<Record<SinkMode, string>> = {
  'exactly-once': 'exactly once: effect, position and idempotency key in one Postgres transaction',
  'fence-only':
    'exactly once per Kafka record: effect and position in one Postgres transaction; what a producer sent twice is applied twice',
  'key-only':
    'exactly once per idempotency key, for as long as the key is kept: effect and key in one Postgres transaction; no zombie is fenced',
  'at-least-once': 'at least once: the offset is committed after the effect; a crash repeats what was in flight',
  'at-most-once': 'at most once: the offset is committed before the effect; a crash loses what was in flight',
};

/**
 * A sink into Postgres. Throws ConfigurationError for options that cannot work; what only the database can tell (a missing table, column or
 * unique index) is a SinkFatalError at start.
 */
export function postgresSink<K, V>(options: PostgresSinkOptions<K, V>): Sink<K, V> {
  const settings = compileOptions(options);
  return Object.freeze({
    kind: 'postgres',
    mode: settings.mode,
    guarantee: GUARANTEES[settings.mode],
    maxBatchRecords: settings.maxBatchRecords,
    keepsDeadLetters: settings.deadLetters === 'table',
    ...(options.idempotencyKey === undefined ? {} : { idempotencyKey: options.idempotencyKey }),
    open: async (context: SinkContext) => await open(settings, context),
  });
}

async function open<K, V>(settings: PostgresSinkSettings<K, V>, context: SinkContext): Promise<SinkWriter<K, V>> {
  const { mode, schema, classify, timeouts, maxConnections } = settings;
  const { applicationId, stage, failPoints, log } = context;
  const connections = new Connections(settings.connection, maxConnections, timeouts, `tidemark ${applicationId}`.slice(0, 63), log);
  const effect: Effect<K, V> =
    settings.effect instanceof InsertRows
      ? new InsertEffect(settings.effect.options, settings.nulCharacters)
      : new FunctionEffect(settings.effect);
  const fences = hasFence(mode) ? new Fences(schema, applicationId, stage) : undefined;
  const deadLetters = settings.deadLetters === 'table' ? new DeadLetters(schema, applicationId, stage) : undefined;
  const processed = hasKeys(mode) ? new ProcessedMessages(schema, `${applicationId}/${stage}`) : undefined;
  try {
    await connections.detectDisconnects();
    if (fences !== undefined || processed !== undefined || deadLetters !== undefined) await migrate(connections, schema);
    await connections.transaction(async (session) => {
      await requireUtf8(await session.query<{ server_encoding: string }>('SHOW server_encoding'));
      await effect.verify(session);
    });
  } catch (error) {
    await connections.close(0);
    throw toSinkError(error, `stage '${stage}', at start`);
  }
  const transaction = new BatchTransaction({
    fences,
    processed,
    deadLetters,
    effect,
    onDuplicates: settings.onDuplicates,
    nul: settings.nulCharacters,
    classify,
    failPoints,
  });
  const concurrency = Math.min(maxConnections, connections.size);
  return new PostgresWriter({ mode, connections, concurrency, fences, transaction, classify, failPoints, log });
}

async function requireUtf8({ rows }: { readonly rows: readonly { server_encoding: string }[] }): Promise<void> {
  const encoding = rows[0]?.server_encoding;
  if (encoding === 'UTF8') return;
  throw new SinkFatalError(
    `Postgres sink: the database has the encoding ${encoding ?? 'unknown'}, which cannot hold all idempotency keys: use a database with the encoding UTF8`,
  );
}
