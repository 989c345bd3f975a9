import { ConfigurationError, SinkFatalError } from '../../model/errors.ts';
import type { RecordContext } from '../../model/record.ts';
import type { SinkRecord } from '../port.ts';
import { arrayLiteral } from './array-literal.ts';
import { columnText, type NulPolicy } from './column-value.ts';
import type { Effect, EffectRun } from './effect.ts';
import { quoteIdentifier, quoteTable, type TableName } from './identifier.ts';
import { insertStatement, type OnConflict } from './insert-statement.ts';
import { RefusedValueError, refusal, type Refusal } from './refusal.ts';
import type { Session } from './session.ts';
import { conflictTargetFault, readTargetColumns, type TargetColumn } from './target-table.ts';

/** A field of the value by its name, or a function of the record. undefined is written as NULL. */
export type ColumnSource<K, V> = (keyof V & string) | ((value: V, key: K, context: RecordContext) => unknown);

export interface InsertOptions<K, V> {
  /** Must exist when the application starts: it is the user's, Tidemark does not create it. */
  readonly table: TableName;
  /**
   * Column by column. Objects become JSON in json, jsonb and text columns; a string for a json column is JSON text already, as in
   * node-postgres. A Date is written in UTC.
   */
  readonly columns: Readonly<Record<string, ColumnSource<K, V>>>;
  /** Default: a row that conflicts is refused. */
  readonly onConflict?: OnConflict;
  /** Rows of one statement. Default 500: measured here, more is not faster. */
  readonly rowsPerStatement?: number;
}

/** An effect that writes one row per record. */
export class InsertRows<K, V> {
  readonly options: InsertOptions<K, V>;

  constructor(options: InsertOptions<K, V>) {
    const names = Object.keys(options.columns);
    if (names.length === 0) throw new ConfigurationError('insert: columns is empty: map at least one column');
    for (const name of names) {
      quoteIdentifier(name);
      const source: unknown = options.columns[name];
      if (typeof source !== 'string' && typeof source !== 'function') {
        throw new ConfigurationError(`insert: column '${name}' must be mapped by the name of a field or by a function`);
      }
    }
    quoteTable(options.table);
    const { onConflict, rowsPerStatement } = options;
    if (typeof onConflict === 'object') {
      if (onConflict.key.length === 0) throw new ConfigurationError('insert: onConflict.key names no column');
      const unmapped = [...onConflict.key, ...(onConflict.update ?? [])].filter((name) => !names.includes(name));
      if (unmapped.length > 0) throw new ConfigurationError(`insert: onConflict names ${unmapped.join(', ')}, which columns does not map`);
    }
    if (rowsPerStatement !== undefined && !(Number.isInteger(rowsPerStatement) && rowsPerStatement > 0)) {
      throw new ConfigurationError(`insert: rowsPerStatement must be a whole number above 0, but is ${rowsPerStatement}`);
    }
    this.options = options;
  }
}

/** Writes one row per record: `postgresSink({ effect: insert({ table: 'flights', columns: { id: 'id' } }) })`. */
export function insert<K, V>(options: InsertOptions<K, V>): InsertRows<K, V> {
  return new InsertRows(options);
}

/** A row in text form, one entry per column. */
type Row = readonly (string | null)[];

export class InsertEffect<K, V> implements Effect<K, V> {
  readonly pipelined = true;
  readonly #options: InsertOptions<K, V>;
  readonly #nul: NulPolicy;
  readonly #sources: readonly ((record: SinkRecord<K, V>) => unknown)[];
  #columns: readonly TargetColumn[] = [];
  #statement = '';

  constructor(options: InsertOptions<K, V>, nul: NulPolicy) {
    this.#options = options;
    this.#nul = nul;
    this.#sources = Object.values(options.columns).map(sourceFunction);
  }

  async verify(session: Session): Promise<void> {
    const { table, columns, onConflict } = this.#options;
    this.#columns = await readTargetColumns(session, table, Object.keys(columns));
    this.#statement = insertStatement(table, this.#columns, onConflict);
    if (typeof onConflict === 'object') {
      const fault = await conflictTargetFault(session, table, onConflict);
      if (fault !== undefined) throw new SinkFatalError(fault);
    }
    // The server's own check of everything at once: the privilege, the casts, the predicate of onConflict.
    await session.query(
      `EXPLAIN ${this.#statement}`,
      this.#columns.map(() => '{}'),
    );
  }

  run(session: Session, records: readonly SinkRecord<K, V>[]): EffectRun<K, V> {
    const rows: Row[] = [];
    const refused: Refusal<K, V>[] = [];
    for (const record of records) {
      try {
        rows.push(this.#row(record));
      } catch (error) {
        refused.push(refusal(record, error));
      }
    }
    return { refused, done: this.#insert(session, this.#arrange(rows)) };
  }

  #row(record: SinkRecord<K, V>): Row {
    return this.#sources.map((source, i) => {
      const column = this.#columns[i]!;
      try {
        return columnText(source(record), column, this.#nul);
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        throw new RefusedValueError(`column "${column.name}": ${reason}`, error instanceof RefusedValueError ? error.sqlstate : null);
      }
    });
  }

  /**
   * For an upsert: one row per key, the last by offset, since a statement may not update a row twice (21000); with ON CONFLICT DO NOTHING the
   * first. In the order of the key, so that two writers of the same rows wait for each other instead of deadlocking.
   */
  #arrange(rows: readonly Row[]): readonly Row[] {
    const { onConflict } = this.#options;
    if (typeof onConflict !== 'object') return rows;
    const positions = onConflict.key.map((name) => this.#columns.findIndex((column) => column.name === name));
    const lastWins = onConflict.update?.length !== 0 && (onConflict.update !== undefined || this.#columns.length > positions.length);
    const byKey = new Map<string, Row>();
    for (const [i, row] of rows.entries()) {
      const key = positions.map((position) => row[position] ?? null);
      // NULLs are distinct to a unique index. Where the index says otherwise, the server answers 21000 and the batch is split.
      const id = key.includes(null) ? `null ${i}` : JSON.stringify(key);
      if (lastWins || !byKey.has(id)) byKey.set(id, row);
    }
    return [...byKey].toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)).map(([, row]) => row);
  }

  async #insert(session: Session, rows: readonly Row[]): Promise<undefined> {
    const size = this.#options.rowsPerStatement ?? 500;
    const answers: Promise<unknown>[] = [];
    for (let start = 0; start < rows.length; start += size) {
      const part = rows.slice(start, start + size);
      answers.push(
        session.query(
          this.#statement,
          this.#columns.map((_, column) => arrayLiteral(part.map((row) => row[column] ?? null))),
        ),
      );
    }
    // The first error in the order of sending is the cause; those behind it only say that the transaction is aborted.
    for (const answer of await Promise.allSettled(answers)) if (answer.status === 'rejected') throw answer.reason;
  }
}

function sourceFunction<K, V>(source: ColumnSource<K, V>): (record: SinkRecord<K, V>) => unknown {
  if (typeof source === 'function') return (record) => source(record.value, record.key, record.context);
  return ({ value }) => {
    if (value === null || value === undefined) throw new RefusedValueError(`the value is ${String(value)}, so it has no field '${source}'`);
    return value[source];
  };
}
