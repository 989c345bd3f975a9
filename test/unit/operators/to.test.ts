import { describe, expect, it } from 'vitest';
import { ProcessingError, SerialisationError } from '../../../src/model/errors.ts';
import { textHeader } from '../../../src/model/headers.ts';
import { to, type ToPlan } from '../../../src/operators/to.ts';
import { nullable } from '../../../src/serde/nullable.ts';
import { string } from '../../../src/serde/string.ts';
import type { Serialiser } from '../../../src/serde/serde.ts';
import { alone, contextOf, SentRecords } from './chain.ts';

const text = nullable(string()) as unknown as Serialiser<unknown>;

function plan(changes: Partial<ToPlan> = {}): ToPlan {
  return { node: 'out', topic: 'target', key: text, value: text, partitioner: undefined, headers: undefined, ...changes };
}

function run(changes: Partial<ToPlan>, collector = new SentRecords(), context = contextOf()) {
  const { step } = alone(to(plan(changes)), collector);
  step('k', 'v', context);
  return collector.sent;
}

describe('to', () => {
  it('sends key, value, timestamp and headers of the record', () => {
    const headers = [textHeader('trace', 't1'), textHeader('trace', 't2')];
    const sent = run({}, new SentRecords(), contextOf({ timestamp: 77, headers }));
    expect(sent).toEqual([{ topic: 'target', partition: undefined, key: 'k', value: 'v', timestamp: 77, headers }]);
    expect(sent[0]?.headers).toBe(headers);
  });

  it('tells the serialisers topic and part', () => {
    const seen: unknown[] = [];
    const spy: Serialiser<unknown> = { name: 'spy', serialise: (value, context) => (seen.push([value, context]), null) };
    run({ key: spy, value: spy });
    expect(seen).toEqual([
      ['k', { topic: 'target', part: 'key' }],
      ['v', { topic: 'target', part: 'value' }],
    ]);
  });

  it('says step, part, topic and serde when a value cannot be written', () => {
    const collector = new SentRecords();
    const { step } = alone(to(plan()), collector);
    expect(() => step('k', 7, contextOf())).toThrow(
      "step 'out' cannot write the value for topic 'target' as nullable(string): a string is needed, but got number",
    );
    expect(() => step(7, 'v', contextOf())).toThrow(/cannot write the key for topic 'target'/);
    expect(() => step(7, 'v', contextOf())).toThrow(SerialisationError);
    expect(collector.sent).toEqual([]);
  });
});

describe('to a computed topic', () => {
  it('asks for each record', () => {
    const collector = new SentRecords();
    const { step } = alone(to(plan({ topic: (value, key, { partition }) => `${String(value)}-${String(key)}-${partition}` })), collector);
    step('k', 'a', contextOf());
    step('k', 'b', contextOf());
    step('k', 'a', contextOf());
    expect(collector.sent.map(({ topic }) => topic)).toEqual(['a-k-0', 'b-k-0', 'a-k-0']);
  });

  it.each([[''], ['..'], ['a b'], ['a/b'], ['x'.repeat(250)], [undefined], [7]])('refuses the name %j', (name) => {
    expect(() => run({ topic: () => name as string })).toThrow(/^step 'out' threw: the topic name that its function returned /);
  });

  it('still knows more topics than it remembers', () => {
    const collector = new SentRecords();
    const { step } = alone(to(plan({ topic: (value) => String(value) })), collector);
    for (let i = 0; i < 2500; i++) step('k', `t${i % 1250}`, contextOf());
    expect(collector.sent).toHaveLength(2500);
    expect(collector.sent[2499]?.topic).toBe('t1249');
  });

  it('blames the step for what its function throws or promises', () => {
    expect(() =>
      run({
        topic: () => {
          throw new Error('which?');
        },
      }),
    ).toThrow(new ProcessingError('out', new Error('which?')));
    expect(() => run({ topic: (async () => 'a') as never })).toThrow(/returned a promise/);
  });
});

describe('a partitioner', () => {
  const byLength = (value: unknown, key: unknown, count: number) => (String(value) + String(key)).length % count;

  it('chooses at once where the partition count is known', () => {
    expect(run({ partitioner: byLength }, new SentRecords(7))[0]?.partition).toBe(2);
  });

  it('chooses when the count becomes known', () => {
    const choose = run({ partitioner: byLength })[0]?.partition as (count: number) => number | undefined;
    expect([choose(7), choose(2)]).toEqual([2, 0]);
  });

  it('may leave it to the default', () => {
    expect(run({ partitioner: () => undefined }, new SentRecords(7))[0]?.partition).toBeUndefined();
  });

  it.each([[-1], [7], [1.5], [NaN], ['1'], [null]])('that answers %j is refused', (answer) => {
    expect(() => run({ partitioner: () => answer as number }, new SentRecords(7))).toThrow(
      /^step 'out' threw: its partitioner returned .*, but the topic has partitions 0 to 6$/,
    );
  });

  it('that throws or waits is an error of the step', () => {
    expect(() =>
      run(
        {
          partitioner: () => {
            throw new Error('lost');
          },
        },
        new SentRecords(7),
      ),
    ).toThrow(ProcessingError);
    expect(() => run({ partitioner: (async () => 1) as never }, new SentRecords(7))).toThrow(/returned a promise/);
  });
});

describe('headers', () => {
  const context = contextOf({ headers: [textHeader('trace', 't')] });

  it('from a list take the place of those of the record', () => {
    expect(run({ headers: () => [textHeader('a', '1')] }, new SentRecords(), context)[0]?.headers).toEqual([textHeader('a', '1')]);
  });

  it('from an object are added, the last ones winning', () => {
    const sent = run(
      { headers: (value) => ({ trace: `${String(value)}é`, raw: new Uint8Array([1]), none: null }) },
      new SentRecords(),
      context,
    );
    expect(sent[0]?.headers).toEqual([
      textHeader('trace', 't'),
      textHeader('trace', 'vé'),
      { key: 'raw', value: new Uint8Array([1]) },
      { key: 'none', value: null },
    ]);
    expect(context.headers).toHaveLength(1);
  });

  it.each([[undefined], [null], ['text']])('that are %j are refused', (answer) => {
    expect(() => run({ headers: () => answer as never })).toThrow(/its headers function must return a list of headers or an object/);
  });
});
