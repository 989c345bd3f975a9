import { describe, expect, it } from 'vitest';
import { ConfigurationError } from '../../../../src/model/errors.ts';
import { quoteIdentifier, quoteTable } from '../../../../src/sink/postgres/identifier.ts';
import { insertStatement, type OnConflict } from '../../../../src/sink/postgres/insert-statement.ts';
import type { TargetColumn } from '../../../../src/sink/postgres/target-table.ts';

describe('identifiers', () => {
  it('are quoted, so that case, reserved words and quotes stay what they are', () => {
    expect(quoteIdentifier('select')).toBe('"select"');
    expect(quoteIdentifier('a"b')).toBe('"a""b"');
    expect(quoteTable('Orders')).toBe('"Orders"');
    expect(quoteTable('shop.orders')).toBe('"shop"."orders"');
    expect(quoteTable({ name: 'with.dot' })).toBe('"with.dot"');
    expect(quoteTable({ schema: 's', name: '; DROP TABLE x' })).toBe('"s"."; DROP TABLE x"');
  });

  it('that Postgres would cut, cannot hold or misread are refused', () => {
    for (const name of ['', 'x'.repeat(64), 'ü'.repeat(32), 'a\0']) expect(() => quoteIdentifier(name)).toThrow(ConfigurationError);
    expect(() => quoteTable('a.b.c')).toThrow(/\{ schema, name \}/);
  });
});

describe('the insert statement', () => {
  const column = (name: string, type: string, unnests = true): TargetColumn => ({ name, type, kind: 'other', array: !unnests, unnests });
  const columns = [column('id', 'bigint'), column('name', 'character varying'), column('tags', 'text[]', false)];
  const insertion =
    'INSERT INTO "orders" ("id", "name", "tags") SELECT u.c1, u.c2, u.c3::text[] FROM unnest($1::bigint[], $2::character varying[], $3::text[]) AS u(c1, c2, c3)';

  it.each<[string, OnConflict | undefined, string]>([
    ['has one parameter per column', undefined, ''],
    ['keeps whatever is there', 'nothing', ' ON CONFLICT DO NOTHING'],
    ['overwrites all but the key', { key: ['id'] }, ' ON CONFLICT ("id") DO UPDATE SET "name" = EXCLUDED."name", "tags" = EXCLUDED."tags"'],
    ['overwrites what it is told to', { key: ['id'], update: ['name'] }, ' ON CONFLICT ("id") DO UPDATE SET "name" = EXCLUDED."name"'],
    ['keeps the old row', { key: ['id'], update: [] }, ' ON CONFLICT ("id") DO NOTHING'],
    ['has nothing to overwrite where all is key', { key: ['id', 'name', 'tags'] }, ' ON CONFLICT ("id", "name", "tags") DO NOTHING'],
    ['names the predicate of a partial index', { key: ['id'], where: 'live', update: [] }, ' ON CONFLICT ("id") WHERE live DO NOTHING'],
  ])('%s', (_what, onConflict, clause) => {
    expect(insertStatement('orders', columns, onConflict)).toBe(insertion + clause);
  });
});
