/* oxlint-disable vitest/expect-expect -- the type checker is what judges these */
import { describe, expectTypeOf, it } from 'vitest';
import { bytes, float64, int32, int64, json, nullable, number, type Serde, string } from '../../src/index.ts';

describe('serdes', () => {
  it('have the types of what they read and write', () => {
    expectTypeOf(string()).toEqualTypeOf<Serde<string>>();
    expectTypeOf(number()).toEqualTypeOf<Serde<number>>();
    expectTypeOf(float64()).toEqualTypeOf<Serde<number>>();
    expectTypeOf(int32()).toEqualTypeOf<Serde<number>>();
    expectTypeOf(int64()).toEqualTypeOf<Serde<bigint>>();
    expectTypeOf(bytes()).toEqualTypeOf<Serde<Buffer>>();
    expectTypeOf(json()).toEqualTypeOf<Serde<unknown>>();
    expectTypeOf(nullable(string())).toEqualTypeOf<Serde<string | null>>();
  });

  it('write only their type', () => {
    const context = { topic: 't', part: 'value' } as const;
    // @ts-expect-error a number is no string
    string().serialise(7, context);
    // @ts-expect-error a number is no bigint
    int64().serialise(7, context);
    // @ts-expect-error null needs nullable
    string().serialise(null, context);
    nullable(string()).serialise(null, context);
  });
});

describe('json', () => {
  it('takes its type from the validator', () => {
    expectTypeOf(json({ validate: (value) => Number(value) })).toEqualTypeOf<Serde<number>>();
    const schema = { '~standard': { version: 1 as const, vendor: 'x', validate: (value: unknown) => ({ value: String(value) }) } };
    expectTypeOf(json({ validate: schema })).toEqualTypeOf<Serde<string>>();
    // @ts-expect-error the validator gives numbers
    json<string>({ validate: (value) => Number(value) });
    // @ts-expect-error a promise would be taken for the value
    json<number>({ validate: async (value) => Number(value) });
  });
});
