import { ConfigurationError } from '../../model/errors.ts';

/** Postgres cuts longer names silently (NAMEDATALEN - 1), and two names could become one. */
const MAX_IDENTIFIER_BYTES = 63;

/** An SQL identifier in double quotes, so that case and reserved words are kept. */
export function quoteIdentifier(name: string): string {
  if (typeof name !== 'string' || name === '')
    throw new ConfigurationError(`an SQL name must be a string that is not empty, but is ${JSON.stringify(name)}`);
  if (name.includes('\0'))
    throw new ConfigurationError(`the SQL name ${JSON.stringify(name)} has a NUL character, which Postgres does not allow`);
  if (Buffer.byteLength(name) > MAX_IDENTIFIER_BYTES) {
    throw new ConfigurationError(
      `the SQL name ${JSON.stringify(name)} is longer than ${MAX_IDENTIFIER_BYTES} bytes, Postgres would cut it`,
    );
  }
  return `"${name.replaceAll('"', '""')}"`;
}

/** `flights` (found on the search path), `warehouse.flights`, or an object where a name itself holds a dot. Case counts. */
export type TableName = string | { readonly schema?: string; readonly name: string };

export function quoteTable(table: TableName): string {
  if (typeof table !== 'string') {
    return table.schema === undefined ? quoteIdentifier(table.name) : `${quoteIdentifier(table.schema)}.${quoteIdentifier(table.name)}`;
  }
  const parts = table.split('.');
  if (parts.length > 2) {
    throw new ConfigurationError(`the table name '${table}' has more than one dot: give it as { schema, name }`);
  }
  return parts.map(quoteIdentifier).join('.');
}
