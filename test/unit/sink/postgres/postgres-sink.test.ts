import { describe, expect, it } from 'vitest';
import { ConfigurationError } from '../../../../src/model/errors.ts';
import { insert } from '../../../../src/sink/postgres/insert-effect.ts';
import type { PostgresSinkOptions } from '../../../../src/sink/postgres/options.ts';
import { postgresSink } from '../../../../src/sink/postgres/postgres-sink.ts';
import type { SinkMode } from '../../../../src/sink/port.ts';

interface Order {
  readonly id: number;
}

const BASE: PostgresSinkOptions<string, Order> = { connection: 'postgres://127.0.0.1/shop', effect: () => undefined };

describe('what a topology sees of the sink', () => {
  it('is exactly-once with dead letters by default', () => {
    expect(postgresSink(BASE)).toMatchObject({ kind: 'postgres', mode: 'exactly-once', maxBatchRecords: 500, keepsDeadLetters: true });
    expect(postgresSink({ ...BASE, deadLetters: 'fail' }).keepsDeadLetters).toBe(false);
  });

  it('is a guarantee that promises no more than the mode keeps', () => {
    const guarantee = (mode: SinkMode): string => postgresSink({ ...BASE, mode }).guarantee;
    expect(guarantee('exactly-once')).toMatch(/^exactly once: effect, position and idempotency key in one Postgres transaction/);
    expect(guarantee('fence-only')).toMatch(/what a producer sent twice is applied twice/);
    expect(guarantee('key-only')).toMatch(/for as long as the key is kept/);
    expect(guarantee('at-least-once')).toMatch(/^at least once: .* a crash repeats/);
    expect(guarantee('at-most-once')).toMatch(/^at most once: .* a crash loses/);
  });
});

describe('options that cannot work are refused before anything runs', () => {
  it.each<[string, object, RegExp]>([
    ['an unknown mode', { mode: 'twice' }, /mode must be one of at-most-once, .*'twice'/],
    ['no connection', { connection: undefined }, /connection must be/],
    ['no effect', { effect: undefined }, /effect must be insert/],
    ['results for duplicates without keys', { mode: 'fence-only', onDuplicates: () => undefined }, /onDuplicates needs idempotency keys/],
    ['a timeout of zero', { lockTimeoutMs: 0 }, /lockTimeoutMs must be a whole number above 0/],
    ['a timeout that is SQL', { statementTimeoutMs: '1; DROP TABLE x' }, /statementTimeoutMs must be a whole number/],
    ['a batch of half a record', { maxBatchRecords: 0.5 }, /maxBatchRecords/],
    ['a schema without a name', { schema: '' }, /must be a string that is not empty/],
    ['an unknown place for dead letters', { deadLetters: 'topic' }, /deadLetters must be one of table, fail/],
  ])('%s', (_what, options, message) => {
    const create = (): unknown => postgresSink({ ...BASE, ...options });
    expect(create).toThrow(ConfigurationError);
    expect(create).toThrow(message);
  });

  it.each<[string, object, RegExp]>([
    ['no columns', { columns: {} }, /columns is empty/],
    ['a column mapped by a number', { columns: { id: 5 } }, /column 'id' must be mapped/],
    ['a conflict key that is not mapped', { onConflict: { key: ['other'] } }, /onConflict names other, which columns does not map/],
    ['a conflict without a key', { onConflict: { key: [] } }, /onConflict.key names no column/],
    ['rows by the half', { rowsPerStatement: 0.5 }, /rowsPerStatement/],
    ['a table in three parts', { table: 'a.b.c' }, /more than one dot/],
  ])('in a column mapping: %s', (_what, options, message) => {
    expect(() => insert<string, Order>({ table: 'orders', columns: { id: 'id' }, ...options })).toThrow(message);
  });
});
