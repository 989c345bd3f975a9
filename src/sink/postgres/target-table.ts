import { SinkFatalError } from '../../model/errors.ts';
import type { ColumnShape } from './column-value.ts';
import { quoteTable, type TableName } from './identifier.ts';
import type { Session } from './session.ts';

/** A column that is written to, as the catalog has it. */
export interface TargetColumn extends ColumnShape {
  readonly name: string;
  /** As it may stand in a cast, without a length: a cast to varchar(3) would cut, where an assignment refuses. */
  readonly type: string;
  /** Whether `unnest($1::type[])` gives values of this type. Arrays would lose their dimensions, and composites fall into columns. */
  readonly unnests: boolean;
}

interface ColumnRow extends Record<string, unknown> {
  readonly name: string;
  readonly type: string;
  readonly base: string;
  readonly element: string | null;
  readonly is_array: boolean;
  readonly unnests: boolean;
  readonly generated: boolean;
  readonly required: boolean;
}

// Domains are followed to the type below them, since that decides on the text form.
const COLUMNS = `
  WITH RECURSIVE base(column_number, oid) AS (
    SELECT attnum, atttypid FROM pg_catalog.pg_attribute WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT column_number, t.typbasetype FROM base JOIN pg_catalog.pg_type t ON t.oid = base.oid WHERE t.typtype = 'd'
  )
  SELECT a.attname AS name,
         pg_catalog.format_type(a.atttypid, -1) AS type,
         b.typname AS base,
         e.typname AS element,
         b.typcategory = 'A' AS is_array,
         declared.typarray <> 0 AND b.typcategory <> 'A' AND b.typtype <> 'c' AND b.typdelim = ',' AS unnests,
         a.attgenerated <> '' OR a.attidentity = 'a' AS generated,
         a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AS required
    FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_type declared ON declared.oid = a.atttypid
    JOIN base ON base.column_number = a.attnum
    JOIN pg_catalog.pg_type b ON b.oid = base.oid AND b.typtype <> 'd'
    LEFT JOIN pg_catalog.pg_type e ON e.oid = b.typelem AND b.typcategory = 'A'
   WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped`;

const BEFORE_INSERT_TRIGGER = `
  SELECT 1 FROM pg_catalog.pg_trigger WHERE tgrelid = $1::oid AND NOT tgisinternal AND tgtype & 4 <> 0 AND tgtype & 66 <> 0 LIMIT 1`;

/** The columns to write, in the given order. Throws SinkFatalError where a table or column is missing or every row would be refused. */
export async function readTargetColumns(session: Session, table: TableName, names: readonly string[]): Promise<readonly TargetColumn[]> {
  const quoted = quoteTable(table);
  const oid = await resolveTable(session, quoted);
  const { rows } = await session.query<ColumnRow>(COLUMNS, [oid]);
  const byName = new Map(rows.map((row) => [row.name, row]));
  const missing = names.filter((name) => !byName.has(name));
  if (missing.length > 0) {
    throw new SinkFatalError(
      `Postgres sink: table ${quoted} has no column ${missing.map((name) => `"${name}"`).join(', ')}; it has ${rows.map((row) => `"${row.name}"`).join(', ')}`,
    );
  }
  const generated = names.filter((name) => byName.get(name)?.generated === true);
  if (generated.length > 0) {
    throw new SinkFatalError(`Postgres sink: table ${quoted} generates column ${generated.join(', ')} itself: leave it out of the mapping`);
  }
  const unfilled = rows.filter((row) => row.required && !names.includes(row.name)).map((row) => `"${row.name}"`);
  if (unfilled.length > 0 && (await session.query(BEFORE_INSERT_TRIGGER, [oid])).rows.length === 0) {
    throw new SinkFatalError(
      `Postgres sink: table ${quoted} needs a value for ${unfilled.join(', ')} (NOT NULL without a default): each row would be refused. Map the column, or give it a default`,
    );
  }
  return names.map((name) => columnOf(byName.get(name)!));
}

async function resolveTable(session: Session, quoted: string): Promise<string> {
  const { rows } = await session.query<{ oid: string | null }>('SELECT pg_catalog.to_regclass($1)::oid::text AS oid', [quoted]);
  const oid = rows[0]?.oid ?? null;
  if (oid === null) {
    throw new SinkFatalError(
      `Postgres sink: there is no table ${quoted} (as seen by this user and search_path): create it before the application starts; the case of the name counts`,
    );
  }
  return oid;
}

function columnOf(row: ColumnRow): TargetColumn {
  const element = row.is_array ? row.element : row.base;
  const kind = element === 'json' || element === 'jsonb' || element === 'bytea' ? element : 'other';
  return { name: row.name, type: row.type, kind, array: row.is_array, unnests: row.unnests };
}

/** What decides whether a row is there already. */
export interface ConflictTarget {
  readonly key: readonly string[];
  readonly where?: string;
}

interface IndexRow extends Record<string, unknown> {
  readonly name: string;
  readonly columns: readonly string[] | null;
  readonly predicate: string | null;
  readonly usable: boolean;
}

const UNIQUE_INDEXES = `
  SELECT c.relname AS name,
         (SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_catalog.pg_attribute a
           WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])) AS columns,
         pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS predicate,
         i.indisvalid AND i.indimmediate AND i.indexprs IS NULL AS usable
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
   WHERE i.indrelid = pg_catalog.to_regclass($1) AND i.indisunique`;

const IS_VIEW = `SELECT 1 FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass($1) AND relkind = 'v'`;

/** Why ON CONFLICT on these columns cannot work, in words that say what to do; undefined: an index is there. */
export async function conflictTargetFault(session: Session, table: TableName, onConflict: ConflictTarget): Promise<string | undefined> {
  const { key, where } = onConflict;
  const quoted = quoteTable(table);
  const { rows } = await session.query<IndexRow>(UNIQUE_INDEXES, [quoted]);
  const wanted = key.toSorted().join('\0');
  const candidates = rows.filter((row) => row.columns?.toSorted().join('\0') === wanted);
  const usable = candidates.filter((row) => row.usable);
  const columns = key.map((name) => `"${name}"`).join(', ');
  const [candidate] = usable.length > 0 ? usable : candidates;
  if (candidate === undefined) {
    // The indexes of a view are those of its table, which the server finds by itself.
    if ((await session.query(IS_VIEW, [quoted])).rows.length > 0) return undefined;
    return `Postgres sink: table ${quoted} has no unique index on (${columns}), which onConflict needs: create one, or name the columns of one that is there`;
  }
  if (!candidate.usable) {
    return `Postgres sink: the unique index "${candidate.name}" on (${columns}) of ${quoted} cannot decide ON CONFLICT: it is deferrable, invalid, or on an expression`;
  }
  if (where !== undefined || usable.some((row) => row.predicate === null)) return undefined;
  return (
    `Postgres sink: the unique index "${candidate.name}" on (${columns}) of ${quoted} is partial (${candidate.predicate}): rows outside of it never conflict. ` +
    `Give that predicate as onConflict.where if this is meant, or create a full unique index`
  );
}
