import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest';
import { SinkFatalError, SinkRetriableError } from '../../src/model/errors.ts';
import { Connections } from '../../src/sink/postgres/connections.ts';
import { insert, type InsertOptions } from '../../src/sink/postgres/insert-effect.ts';
import { migrate, MIGRATIONS, type Migration } from '../../src/sink/postgres/migrations.ts';
import type { PostgresSinkOptions } from '../../src/sink/postgres/options.ts';
import { postgresSink } from '../../src/sink/postgres/postgres-sink.ts';
import { recordingLog, sinkBatch, sinkContext } from '../support/sink-batch.ts';
import { createTestDatabase, type TestDatabase, withDatabase } from '../support/test-database.ts';

interface Row {
  readonly id: number;
  readonly name?: string;
}

type Key = string | null;

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase(inject('databaseUrl'));
});

afterAll(async () => {
  await database.drop();
});

beforeEach(async () => {
  await database.query('DROP SCHEMA IF EXISTS tidemark, warehouse CASCADE');
  await database.query('DROP TABLE IF EXISTS things');
  await database.query(
    'CREATE TABLE things (id bigint, name text, deleted boolean NOT NULL DEFAULT false, made bigint GENERATED ALWAYS AS IDENTITY)',
  );
});

async function start(effect: Partial<InsertOptions<Key, Row>> = {}, options: Partial<PostgresSinkOptions<Key, Row>> = {}): Promise<void> {
  const sink = postgresSink<Key, Row>({
    connection: database.url,
    effect: insert<Key, Row>({ table: 'things', columns: { id: 'id' }, ...effect }),
    ...options,
  });
  const writer = await sink.open(sinkContext());
  await writer.close();
}

describe('a table or column that does not exist shows with the first record', () => {
  it('no: at the start, in words that name it', async () => {
    await expect(start({ table: 'thinks' })).rejects.toThrow(/there is no table "thinks"/);
    await expect(start({ table: 'warehouse.things' })).rejects.toThrow(/there is no table "warehouse"."things"/);
    await expect(start({ columns: { id: 'id', Name: 'name' } })).rejects.toThrow(
      /has no column "Name"; it has "id", "name", "deleted", "made"/,
    );
    await expect(start({ columns: { id: 'id', made: 'id' } })).rejects.toThrow(/generates column made itself/);
    await start({ columns: { id: 'id', name: 'name' } });
  });

  it('and so does a column that must have a value and gets none, since every row would be refused', async () => {
    await database.query('ALTER TABLE things ADD COLUMN owner text NOT NULL');
    await expect(start()).rejects.toThrow(/needs a value for "owner"/);
    // A trigger may fill it: that is for the rows to show.
    await database.query(
      `CREATE OR REPLACE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.owner = 'x'; RETURN NEW; END $$`,
    );
    await database.query('CREATE TRIGGER fill BEFORE INSERT ON things FOR EACH ROW EXECUTE FUNCTION fill()');
    await start();
  });

  it('finds tables in other schemas, and names that need quotes', async () => {
    await database.query('CREATE SCHEMA warehouse; CREATE TABLE warehouse."Order ""x"".y" ("select" bigint, "täg" text[])');
    const table = { schema: 'warehouse', name: 'Order "x".y' };
    await expect(start({ table, columns: { select: 'id', täg: () => ['a'] } })).resolves.toBeUndefined();
  });
});

describe('ON CONFLICT without a matching unique constraint (kafka-connect-jdbc#1127, #645)', () => {
  it('is refused at the start, with the columns that it needs', async () => {
    await database.query('CREATE UNIQUE INDEX ON things (id, name)');
    await expect(start({ onConflict: { key: ['id'] } })).rejects.toThrow(SinkFatalError);
    await expect(start({ onConflict: { key: ['id'] } })).rejects.toThrow(/has no unique index on \("id"\)/);
    await start({ columns: { id: 'id', name: 'name' }, onConflict: { key: ['name', 'id'] } });
  });

  it('a partial unique index needs its predicate (peewee#1860, postgrest-js#403)', async () => {
    await database.query('CREATE UNIQUE INDEX live_things ON things (id) WHERE NOT deleted');
    await expect(start({ onConflict: { key: ['id'] } })).rejects.toThrow(/"live_things" on \("id"\) .* is partial \(\(NOT deleted\)\)/);
    await start({ onConflict: { key: ['id'], where: 'NOT deleted' } });
    await expect(start({ onConflict: { key: ['id'], where: 'id > 5' } })).rejects.toThrow(/42P10/);
  });

  it('a view has those of its table', async () => {
    await database.query('CREATE UNIQUE INDEX ON things (id); CREATE VIEW all_things AS SELECT id, name FROM things');
    await expect(start({ table: 'all_things', onConflict: { key: ['id'] } })).resolves.toBeUndefined();
    await database.query('DROP VIEW all_things');
  });

  it('a deferrable one cannot decide', async () => {
    await database.query('ALTER TABLE things ADD CONSTRAINT late UNIQUE (id) DEFERRABLE');
    await expect(start({ onConflict: { key: ['id'] } })).rejects.toThrow(/"late" on \("id"\) .* cannot decide/);
  });
});

describe('the connection', () => {
  it('to a database that does not exist, or with the wrong password, is no matter for retries', async () => {
    const missing = withDatabase(database.url, `missing_${randomBytes(4).toString('hex')}`);
    await expect(start({}, { connection: missing })).rejects.toThrow(SinkFatalError);
    await expect(start({}, { connection: missing })).rejects.toThrow(/Create the database/);
    const stranger = new URL(database.url);
    stranger.username = `stranger_${randomBytes(4).toString('hex')}`;
    await expect(start({}, { connection: stranger.toString() })).rejects.toMatchObject({ code: 'SINK_FATAL' });
  });

  it('to a server that is not there yet is one', async () => {
    await expect(start({}, { connection: 'postgres://postgres@127.0.0.1:1/postgres' })).rejects.toThrow(SinkRetriableError);
  });

  it('of a user without the privilege to write names it at the start', async () => {
    const role = `reader_${randomBytes(4).toString('hex')}`;
    await start();
    await database.query(`CREATE ROLE ${role} LOGIN PASSWORD '${role}'`);
    try {
      await database.query(`GRANT USAGE ON SCHEMA tidemark TO ${role}; GRANT SELECT ON ALL TABLES IN SCHEMA tidemark, public TO ${role}`);
      const limited = new URL(database.url);
      limited.username = role;
      limited.password = role;
      await expect(start({}, { connection: limited.toString() })).rejects.toThrow(
        /permission denied for table things.*Grant the missing privilege/,
      );
      // With it, no right to create anything is needed where the tables are there already.
      await database.query(`GRANT INSERT ON things TO ${role}`);
      await start({}, { connection: limited.toString() });
    } finally {
      await database.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    }
  });
});

describe('migrations', () => {
  const limits = { connectMs: 5_000, statementMs: 30_000, lockMs: 10_000, idleInTransactionMs: 10_000 };

  async function withConnections(work: (connections: Connections) => Promise<void>): Promise<void> {
    const connections = new Connections(database.url, 2, limits, 'tidemark test', recordingLog().log);
    try {
      await work(connections);
    } finally {
      await connections.close(1_000);
    }
  }

  it('may be run by many processes at once', async () => {
    for (let round = 0; round < 3; round++) {
      await database.query('DROP SCHEMA IF EXISTS tidemark CASCADE');
      await Promise.all(Array.from({ length: 8 }, async () => await start()));
      expect(await database.query('SELECT version FROM tidemark.migrations')).toEqual([{ version: 1 }]);
    }
  });

  it('also where somebody else makes the schema at the same time', async () => {
    await Promise.all([
      withConnections(async (connections) => await migrate(connections, 'tidemark')),
      ...Array.from({ length: 4 }, async () => await database.query('CREATE SCHEMA IF NOT EXISTS tidemark').catch(() => undefined)),
    ]);
    expect(await database.query('SELECT version FROM tidemark.migrations')).toEqual([{ version: 1 }]);
  });

  it('are run in order, once each, and not at all where one fails', async () => {
    const second: Migration = { version: 2, name: 'second', statements: (schema) => [`CREATE TABLE ${schema}.second (a int)`] };
    const broken: Migration = {
      version: 3,
      name: 'broken',
      statements: (schema) => [`CREATE TABLE ${schema}.third (a int)`, 'SELECT 1 / 0'],
    };
    await withConnections(async (connections) => {
      await migrate(connections, 'tidemark');
      await expect(migrate(connections, 'tidemark', [...MIGRATIONS, second, broken])).rejects.toThrow(/division by zero/);
      expect(await database.query('SELECT version FROM tidemark.migrations')).toEqual([{ version: 1 }]);
      await migrate(connections, 'tidemark', [...MIGRATIONS, second]);
      await migrate(connections, 'tidemark', [...MIGRATIONS, second]);
      expect(await database.query('SELECT version FROM tidemark.migrations ORDER BY 1')).toEqual([{ version: 1 }, { version: 2 }]);
    });
  });

  it('of a newer release are not worked with', async () => {
    await start();
    await database.query(`INSERT INTO tidemark.migrations (version, name) VALUES (99, 'from the future')`);
    await expect(start()).rejects.toThrow(/is at version 99 \('from the future'\), this code knows versions up to/);
    await start({}, { schema: 'warehouse' });
  });

  it('are not needed where nothing of ours is kept', async () => {
    await start({}, { mode: 'at-least-once', deadLetters: 'fail' });
    expect(await database.query(`SELECT to_regnamespace('tidemark')::text AS schema`)).toEqual([{ schema: null }]);
  });
});

describe('a type whose values must be written in their own way', () => {
  it('comes back as it was given', async () => {
    await database.query(`DROP TABLE IF EXISTS types; DROP DOMAIN IF EXISTS tags; DROP TYPE IF EXISTS mood, pair`);
    await database.query(
      `CREATE TYPE mood AS ENUM ('fine', 'so so'); CREATE TYPE pair AS (a int, b text); CREATE DOMAIN tags AS text[] CHECK (cardinality(VALUE) < 5)`,
    );
    await database.query(`CREATE TABLE types (
      id bigint, texts text[], grid int[], docs jsonb[], blobs bytea[], doc jsonb, plain json, list jsonb, day date, at timestamptz, local timestamp,
      amount numeric(12, 3), ratio float8, ok boolean, how mood, two pair, area box, span int4range, labels tags, bits bit(3), fixed char(4), id2 uuid, note varchar(5)
    )`);
    const at = new Date('2024-02-29T12:34:56.789Z');
    const values: Record<string, unknown> = {
      id: 2n ** 60n,
      texts: ['a', 'b"c\\d', '', null, 'NULL', '{x,y}', ' '],
      grid: [
        [1, 2],
        [3, 4],
      ],
      docs: [{ a: [1] }, [1, 2], 'null'],
      blobs: [Buffer.from([0, 255]), null],
      doc: { 'a"b': [null, true, 'ü\n'] },
      plain: { z: 1, a: 2 },
      list: [1, 'two', { three: 3 }],
      day: at,
      at,
      local: at,
      amount: '123456789.125',
      ratio: Number.NaN,
      ok: false,
      how: 'so so',
      two: '(7,"x y")',
      area: '((0,0),(1,1))',
      span: '[1,5)',
      labels: ['x', 'y'],
      bits: '101',
      fixed: 'ab',
      id2: 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11',
      note: 'ünïcö',
    };
    const sink = postgresSink<Key, Record<string, unknown>>({
      connection: database.url,
      effect: insert<Key, Record<string, unknown>>({
        table: 'types',
        columns: Object.fromEntries(Object.keys(values).map((name) => [name, name])),
      }),
      deadLetters: 'fail',
    });
    const writer = await sink.open(sinkContext());
    await writer.claim({ topic: 'orders', partition: 0 }, 0n);
    await writer.write(sinkBatch([{ value: values }, { value: { id: 1 } }]));
    await writer.close();
    const rows = await database.query(
      `SELECT to_jsonb(types) || jsonb_build_object('at', at AT TIME ZONE 'UTC', 'ratio', ratio::text) AS row FROM types ORDER BY id DESC`,
    );
    expect(rows[0]?.['row']).toEqual({
      id: 1152921504606846976,
      texts: ['a', 'b"c\\d', '', null, 'NULL', '{x,y}', ' '],
      grid: [
        [1, 2],
        [3, 4],
      ],
      docs: [{ a: [1] }, [1, 2], null],
      blobs: ['\\x00ff', null],
      doc: { 'a"b': [null, true, 'ü\n'] },
      plain: { z: 1, a: 2 },
      list: [1, 'two', { three: 3 }],
      day: '2024-02-29',
      at: '2024-02-29T12:34:56.789',
      local: '2024-02-29T12:34:56.789',
      amount: 123456789.125,
      ratio: 'NaN',
      ok: false,
      how: 'so so',
      two: { a: 7, b: 'x y' },
      area: '(1,1),(0,0)',
      span: '[1,5)',
      labels: ['x', 'y'],
      bits: '101',
      fixed: 'ab  ',
      id2: 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
      note: 'ünïcö',
    });
    expect(Object.values(rows[1]?.['row'] as object).filter((value) => value !== null)).toEqual([1]);
  });
});
