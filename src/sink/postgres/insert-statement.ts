import { quoteIdentifier, quoteTable, type TableName } from './identifier.ts';
import type { TargetColumn } from './target-table.ts';

/** What happens to a row whose key is there already; absent: it is an error of that row. */
export type OnConflict =
  | 'nothing'
  | {
      /** The columns of a unique index. */
      readonly key: readonly string[];
      /** The predicate of a partial unique index, as SQL; it is code, so never build it from data. */
      readonly where?: string;
      /** The columns that the new row overwrites. Default: all that are not in `key`. Empty: the old row stays. */
      readonly update?: readonly string[];
    };

/**
 * `INSERT ... SELECT ... FROM unnest($1::type[], ...)`: one parameter per column, however many rows, so the limit of 65,535 parameters (which
 * wraps silently in the protocol) is out of reach, and the statement's text is always the same.
 */
export function insertStatement(table: TableName, columns: readonly TargetColumn[], onConflict: OnConflict | undefined): string {
  const names = columns.map((column) => quoteIdentifier(column.name));
  const sources = columns.map((column, i) => `$${i + 1}::${column.unnests ? column.type : 'text'}[]`);
  const selected = columns.map((column, i) => (column.unnests ? `u.c${i + 1}` : `u.c${i + 1}::${column.type}`));
  const aliases = columns.map((_, i) => `c${i + 1}`);
  return (
    `INSERT INTO ${quoteTable(table)} (${names.join(', ')}) SELECT ${selected.join(', ')} ` +
    `FROM unnest(${sources.join(', ')}) AS u(${aliases.join(', ')})${conflictClause(names, columns, onConflict)}`
  );
}

function conflictClause(names: readonly string[], columns: readonly TargetColumn[], onConflict: OnConflict | undefined): string {
  if (onConflict === undefined) return '';
  if (onConflict === 'nothing') return ' ON CONFLICT DO NOTHING';
  const target = ` ON CONFLICT (${onConflict.key.map(quoteIdentifier).join(', ')})${onConflict.where === undefined ? '' : ` WHERE ${onConflict.where}`}`;
  const updated =
    onConflict.update?.map(quoteIdentifier) ??
    names.filter((_, i) => columns[i] !== undefined && !onConflict.key.includes(columns[i].name));
  if (updated.length === 0) return `${target} DO NOTHING`;
  return `${target} DO UPDATE SET ${updated.map((name) => `${name} = EXCLUDED.${name}`).join(', ')}`;
}
