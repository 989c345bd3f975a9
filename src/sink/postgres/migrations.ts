import { SinkFatalError } from '../../model/errors.ts';
import type { Connections } from './connections.ts';
import { quoteIdentifier } from './identifier.ts';
import type { Session } from './session.ts';
import { sqlstateOf } from './sqlstate.ts';

export interface Migration {
  readonly version: number;
  readonly name: string;
  /** `schema` comes quoted. */
  readonly statements: (schema: string) => readonly string[];
}

/** Never changed once released, only added to. */
export const MIGRATIONS: readonly Migration[] = [
  {
    version: 1,
    name: 'fences, processed messages, dead letters',
    statements: (schema) => [
      `CREATE TABLE ${schema}.fences (
         application text NOT NULL,
         stage       text NOT NULL,
         topic       text NOT NULL,
         partition   integer NOT NULL,
         next_offset bigint NOT NULL,
         epoch       bigint NOT NULL,
         updated_at  timestamptz NOT NULL DEFAULT now(),
         PRIMARY KEY (application, stage, topic, partition)
       ) WITH (fillfactor = 50)`,
      // Byte order: keys are only compared, never shown in order, and no change of the system's collations can corrupt the index.
      `CREATE TABLE ${schema}.processed_messages (
         consumer        text COLLATE "C" NOT NULL,
         idempotency_key text COLLATE "C" NOT NULL,
         processed_at    timestamptz NOT NULL DEFAULT now(),
         result          jsonb,
         PRIMARY KEY (consumer, idempotency_key)
       )`,
      `CREATE TABLE ${schema}.dead_letters (
         id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
         application      text NOT NULL,
         stage            text NOT NULL,
         topic            text NOT NULL,
         partition        integer NOT NULL,
         "offset"         bigint NOT NULL,
         record_timestamp bigint NOT NULL,
         idempotency_key  text COLLATE "C" NOT NULL,
         key              bytea,
         value            bytea,
         headers          jsonb NOT NULL,
         sqlstate         text,
         message          text NOT NULL,
         attempts         integer NOT NULL DEFAULT 1,
         failed_at        timestamptz NOT NULL DEFAULT now(),
         UNIQUE (application, stage, topic, partition, "offset", idempotency_key, record_timestamp)
       )`,
    ],
  },
];

const LOCK_CLASS = 0x7469_6465; // 'tide': keeps this lock apart from those of the application
/** Another process may be migrating. */
const LOCK_TIMEOUT_MS = 60_000;
const ATTEMPTS = 5;

/**
 * Brings Tidemark's own tables to the newest version; any number of processes may do so at once. Where nothing is to be done, no privilege
 * beyond reading is needed. Throws SinkFatalError where the tables are newer than this code.
 */
export async function migrate(connections: Connections, schema: string, migrations: readonly Migration[] = MIGRATIONS): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      if (await connections.transaction(async (session) => await isCurrent(session, schema, migrations))) return;
      await connections.transaction(async (session) => await migrateLocked(session, schema, migrations));
      return;
    } catch (error) {
      // Somebody else, without our lock, made the same schema in the same moment.
      const code = sqlstateOf(error);
      if (attempt >= ATTEMPTS || (code !== '23505' && code !== '42P06' && code !== '42P07')) throw error;
    }
  }
}

async function isCurrent(session: Session, schema: string, migrations: readonly Migration[]): Promise<boolean> {
  const table = `${quoteIdentifier(schema)}.migrations`;
  const { rows } = await session.query<{ present: boolean }>('SELECT pg_catalog.to_regclass($1) IS NOT NULL AS present', [table]);
  if (rows[0]?.present !== true) return false;
  return (await pending(session, schema, migrations)).length === 0;
}

async function migrateLocked(session: Session, schema: string, migrations: readonly Migration[]): Promise<void> {
  const quoted = quoteIdentifier(schema);
  await session.query(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}; SET LOCAL statement_timeout = ${LOCK_TIMEOUT_MS}`);
  await session.query('SELECT pg_catalog.pg_advisory_xact_lock($1, pg_catalog.hashtext($2))', [LOCK_CLASS, schema]);
  const { rows } = await session.query<{ present: boolean }>('SELECT pg_catalog.to_regnamespace($1) IS NOT NULL AS present', [quoted]);
  // IF NOT EXISTS asks for the privilege to create even where there is nothing to create.
  if (rows[0]?.present !== true) await session.query(`CREATE SCHEMA IF NOT EXISTS ${quoted}`);
  await session.query(
    `CREATE TABLE IF NOT EXISTS ${quoted}.migrations (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())`,
  );
  for (const migration of await pending(session, schema, migrations)) {
    for (const statement of migration.statements(quoted)) await session.query(statement);
    await session.query(`INSERT INTO ${quoted}.migrations (version, name) VALUES ($1, $2)`, [migration.version, migration.name]);
  }
}

async function pending(session: Session, schema: string, migrations: readonly Migration[]): Promise<readonly Migration[]> {
  const quoted = quoteIdentifier(schema);
  const { rows } = await session.query<{ version: number; name: string }>(
    `SELECT version, name FROM ${quoted}.migrations ORDER BY version`,
  );
  const newest = migrations.at(-1)?.version ?? 0;
  for (const { version, name } of rows) {
    const known = migrations.find((migration) => migration.version === version);
    if (version > newest) {
      throw new SinkFatalError(
        `Postgres sink: schema ${quoted} is at version ${version} ('${name}'), this code knows versions up to ${newest}: a newer release has migrated it. Run that release, or give another schema name`,
      );
    }
    if (known?.name !== name) {
      throw new SinkFatalError(
        `Postgres sink: version ${version} of schema ${quoted} is '${name}', not '${known?.name ?? 'known'}': the schema belongs to something else. Give another schema name`,
      );
    }
  }
  const applied = new Set(rows.map(({ version }) => version));
  return migrations.filter(({ version }) => !applied.has(version));
}
