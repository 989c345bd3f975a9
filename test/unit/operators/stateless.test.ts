import { describe, expect, it, vi } from 'vitest';
import { ProcessingError } from '../../../src/model/errors.ts';
import { lastHeader, textHeader } from '../../../src/model/headers.ts';
import { branch } from '../../../src/operators/branch.ts';
import { filter } from '../../../src/operators/filter.ts';
import { flatMap } from '../../../src/operators/flat-map.ts';
import { flatMapValues } from '../../../src/operators/flat-map-values.ts';
import { map } from '../../../src/operators/map.ts';
import { mapValues } from '../../../src/operators/map-values.ts';
import { passThrough } from '../../../src/operators/pass-through.ts';
import { foreach, peek } from '../../../src/operators/peek.ts';
import { selectKey } from '../../../src/operators/select-key.ts';
import type { Operator, Step } from '../../../src/operators/step.ts';
import type { UserFunction } from '../../../src/operators/user-function.ts';
import { alone, contextOf, SentRecords } from './chain.ts';

/** Every operator that calls a function of the application, made with a function that may do anything. */
const operators: Record<string, (fn: UserFunction<never>) => Operator> = {
  filter: (fn) => filter('node', fn, true),
  filterNot: (fn) => filter('node', fn, false),
  map: (fn) => map('node', fn),
  mapValues: (fn) => mapValues('node', fn),
  flatMap: (fn) => flatMap('node', fn),
  flatMapValues: (fn) => flatMapValues('node', fn),
  selectKey: (fn) => selectKey('node', fn),
  peek: (fn) => peek('node', fn),
  foreach: (fn) => foreach('node', fn),
  split: (fn) => branch('node', [{ outlet: 'a', predicate: fn }]),
};

describe.each(Object.entries(operators))('%s', (_, operatorWith) => {
  it('calls its function with value, key and context', () => {
    const fn = vi.fn<() => never>(() => {
      throw new Error('seen');
    });
    const context = contextOf();
    expect(() => alone(operatorWith(fn)).step('key', 'value', context)).toThrow('seen');
    expect(fn.mock.calls).toEqual([['value', 'key', context]]);
  });

  it('names the step when its function throws, and keeps the cause', () => {
    const cause = new RangeError('too far');
    const { step, passed } = alone(
      operatorWith(() => {
        throw cause;
      }),
    );
    const error = thrownBy(() => step('key', 'value', contextOf()));
    expect(error).toBeInstanceOf(ProcessingError);
    expect(error).toMatchObject({ node: 'node', cause, message: "step 'node' threw: too far" });
    expect(passed).toEqual([]);
  });

  it('refuses a promise instead of taking it for the result, and passes nothing on', async () => {
    const { step, passed } = alone(operatorWith((() => Promise.reject(new Error('nobody waits'))) as never));
    expect(() => step('key', 'value', contextOf())).toThrow(
      /step 'node' threw: its function returned a promise, but steps are synchronous/,
    );
    expect(passed).toEqual([]);
    // An unhandled rejection would fail the run.
    await Promise.resolve();
  });
});

describe('what steps behind throw', () => {
  const downstream = new Error('downstream');
  const results: Record<string, unknown> = { map: [1, 2], flatMap: [[1, 2]], flatMapValues: [1], filterNot: false };
  it.each(Object.entries(operators).filter(([name]) => name !== 'foreach'))('is not taken for an error of %s', (name, operatorWith) => {
    const fail: Step = () => {
      throw downstream;
    };
    const step = operatorWith((() => results[name] ?? true) as never)(fail, new Map([['a', fail]]), { collector: new SentRecords() });
    expect(thrownBy(() => step('key', 'value', contextOf()))).toBe(downstream);
  });
});

describe('filter', () => {
  it('keeps what matches, filterNot the rest', () => {
    const even = (value: unknown) => (value as number) % 2 === 0;
    const kept = alone(filter('node', even, true));
    const dropped = alone(filter('node', even, false));
    const context = contextOf();
    for (const value of [1, 2, 3]) {
      kept.step('key', value, context);
      dropped.step('key', value, context);
    }
    expect(kept.passed).toEqual([['key', 2, context]]);
    expect(dropped.passed.map(([, value]) => value)).toEqual([1, 3]);
  });

  it('takes truthy and falsy answers of JavaScript as such', () => {
    const { step, passed } = alone(filter('node', ((value: unknown) => value) as UserFunction<boolean>, true));
    for (const value of ['text', '', undefined, 7, {}]) step('key', value, contextOf());
    expect(passed.map(([, value]) => value)).toEqual(['text', 7, {}]);
  });
});

describe('map, mapValues and selectKey', () => {
  it('replace what they are for, and keep the context', () => {
    const context = contextOf();
    const mapped = alone(map('node', (value, key) => [value, key]));
    const withValue = alone(mapValues('node', () => undefined));
    const withKey = alone(selectKey('node', () => null));
    for (const { step } of [mapped, withValue, withKey]) step('key', 'value', context);
    expect(mapped.passed).toEqual([['value', 'key', context]]);
    expect(withValue.passed).toEqual([['key', undefined, context]]);
    expect(withKey.passed).toEqual([[null, 'value', context]]);
    expect(mapped.passed[0]?.[2]).toBe(context);
  });

  it.each([[undefined], [7], [{ 0: 1, 1: 2 }], [[1]], [[1, 2, 3]]])('map refuses %j', (result) => {
    const { step } = alone(map('node', () => result as never));
    expect(() => step('key', 'value', contextOf())).toThrow("step 'node' threw: its function must return [key, value]");
  });
});

describe('flatMap and flatMapValues', () => {
  it('pass on each result in order', () => {
    const pairs = alone(
      flatMap('node', () => [
        ['a', 1],
        ['b', 2],
      ]),
    );
    const values = alone(flatMapValues('node', () => new Set([1, 2])));
    const none = alone(flatMapValues('node', () => []));
    for (const { step } of [pairs, values, none]) step('key', 'value', contextOf());
    expect(pairs.passed.map(([key, value]) => [key, value])).toEqual([
      ['a', 1],
      ['b', 2],
    ]);
    expect(values.passed.map(([key, value]) => [key, value])).toEqual([
      ['key', 1],
      ['key', 2],
    ]);
    expect(none.passed).toEqual([]);
  });

  it('blames the step for a generator that throws half way', () => {
    const { step, passed } = alone(
      flatMapValues('node', function* () {
        yield 1;
        throw new Error('half way');
      }),
    );
    expect(() => step('key', 'value', contextOf())).toThrow(new ProcessingError('node', new Error('half way')));
    expect(passed).toHaveLength(1);
  });

  it('lets a generator clean up when a step behind throws', () => {
    const cleaned = vi.fn<() => void>();
    const operator = flatMapValues('node', function* () {
      try {
        yield 1;
        yield 2;
      } finally {
        cleaned();
      }
    });
    const downstream = new Error('downstream');
    const step = operator(
      () => {
        throw downstream;
      },
      new Map(),
      { collector: new SentRecords() },
    );
    expect(thrownBy(() => step('key', 'value', contextOf()))).toBe(downstream);
    expect(cleaned).toHaveBeenCalledOnce();
  });

  it.each([[undefined], [null], [7], [{ length: 1 }]])('refuse %j', (result) => {
    const { step } = alone(flatMapValues('node', () => result as never));
    expect(() => step('key', 'value', contextOf())).toThrow(/step 'node' threw: its function must return an iterable/);
  });

  it('refuse promises among the results', () => {
    const { step } = alone(flatMapValues('node', () => [1, Promise.resolve(2)]));
    expect(() => step('key', 'value', contextOf())).toThrow(/returned a promise/);
  });

  it('give each further result an idempotency key of its own, so that it is not taken for a repetition', () => {
    const other = textHeader('trace', 't');
    const context = contextOf({ headers: [textHeader('Idempotency-Key', 'old'), other, textHeader('idempotency-key', 'order-7')] });
    for (const results of [['a', 'b', 'c'], new Set(['a', 'b', 'c'])]) {
      const { step, passed } = alone(flatMapValues('node', () => results));
      step('key', 'value', context);
      const keys = passed.map(([, , { headers }]) => Buffer.from(lastHeader(headers, 'idempotency-key') ?? '').toString());
      expect(keys).toEqual(['order-7', 'order-7/1', 'order-7/2']);
      expect(passed[0]?.[2]).toBe(context);
      expect(passed[1]?.[2]).toEqual({ ...context, headers: [other, textHeader('idempotency-key', 'order-7/1')] });
    }
  });

  it('leave the context alone where there is no idempotency key', () => {
    const context = contextOf({ headers: [textHeader('trace', 't')] });
    const { step, passed } = alone(flatMapValues('node', () => ['a', 'b']));
    step('key', 'value', context);
    expect(passed.map(([, , passedContext]) => passedContext === context)).toEqual([true, true]);
  });
});

describe('peek and foreach', () => {
  it('call their function, and peek passes the record on', () => {
    const seen: unknown[] = [];
    const look = (value: unknown) => seen.push(value);
    const peeked = alone(peek('node', look));
    const ended = alone(foreach('node', look));
    peeked.step('key', 1, contextOf());
    ended.step('key', 2, contextOf());
    expect(seen).toEqual([1, 2]);
    expect(peeked.passed).toHaveLength(1);
    expect(ended.passed).toHaveLength(0);
  });
});

describe('split', () => {
  function ways(branches: Parameters<typeof branch>[1], outlets: readonly string[]) {
    const taken: string[] = [];
    const children = new Map<string, Step>(
      outlets.map((outlet) => [outlet, (_key, value) => void taken.push(`${outlet}:${String(value)}`)]),
    );
    const unused: Step = () => {
      throw new Error('a split never hands a record to all');
    };
    return { step: branch('node', branches)(unused, children, { collector: new SentRecords() }), taken };
  }
  const above = (limit: number) => (value: unknown) => (value as number) > limit;

  it('hands a record to the first branch that matches and to no other', () => {
    const { step, taken } = ways(
      [
        { outlet: 'high', predicate: above(10) },
        { outlet: 'middle', predicate: above(5) },
        { outlet: 'rest', predicate: undefined },
      ],
      ['rest', 'middle', 'high'],
    );
    for (const value of [1, 7, 20]) step('key', value, contextOf());
    expect(taken).toEqual(['rest:1', 'middle:7', 'high:20']);
  });

  it('drops what no branch takes', () => {
    const { step, taken } = ways([{ outlet: 'high', predicate: above(10) }], ['high']);
    for (const value of [1, 20]) step('key', value, contextOf());
    expect(taken).toEqual(['high:20']);
  });

  it('keeps the order of its branches where an outlet is not there', () => {
    const { step, taken } = ways(
      [
        { outlet: 'high', predicate: above(10) },
        { outlet: 'rest', predicate: undefined },
      ],
      ['rest'],
    );
    for (const value of [1, 20]) step('key', value, contextOf());
    expect(taken).toEqual(['rest:1']);
  });
});

describe('pass-through', () => {
  it('is the step behind it', () => {
    const next: Step = () => undefined;
    expect(passThrough(next, new Map(), { collector: new SentRecords() })).toBe(next);
  });
});

function thrownBy(action: () => unknown): unknown {
  try {
    action();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was thrown');
}
