import { randomBytes } from 'node:crypto';
import pg from 'pg';

/** A database of its own for one test file, so that files can run at the same time and leave nothing behind. */
export interface TestDatabase {
  readonly url: string;
  /** For looking at it from the side of the code under test. */
  readonly pool: pg.Pool;
  query<R extends Record<string, unknown>>(text: string, values?: readonly unknown[]): Promise<R[]>;
  drop(): Promise<void>;
}

export async function createTestDatabase(serverUrl: string): Promise<TestDatabase> {
  const name = `tidemark_test_${randomBytes(6).toString('hex')}`;
  await onServer(serverUrl, `CREATE DATABASE ${name} ENCODING 'UTF8' TEMPLATE template0`);
  const url = withDatabase(serverUrl, name);
  const pool = new pg.Pool({ connectionString: url, max: 3 });
  pool.on('error', () => undefined);
  return {
    url,
    pool,
    query: async <R extends Record<string, unknown>>(text: string, values?: readonly unknown[]) =>
      (await pool.query<R>(text, values as unknown[])).rows,
    drop: async () => {
      await pool.end();
      await onServer(serverUrl, `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    },
  };
}

/** The same server and user, another database; optionally by way of another port, such as that of a proxy. */
export function withDatabase(serverUrl: string, database: string, port?: number): string {
  const url = new URL(serverUrl);
  url.pathname = `/${database}`;
  if (port !== undefined) url.port = String(port);
  return url.toString();
}

async function onServer(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => undefined);
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}
