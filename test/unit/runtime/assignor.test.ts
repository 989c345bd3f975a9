import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { GroupMember } from '../../../src/kafka/port.ts';
import { FatalError } from '../../../src/model/errors.ts';
import type { TopicPartition } from '../../../src/model/topic-partition.ts';
import { TaskAssignor } from '../../../src/runtime/assignor.ts';
import { TaskPlan } from '../../../src/runtime/task-plan.ts';
import { StreamsBuilder } from '../../../src/topology/streams-builder.ts';

function plan(...streams: (string | string[] | RegExp)[]): TaskPlan {
  const builder = new StreamsBuilder();
  for (const topics of streams) builder.stream(topics).to('out');
  return new TaskPlan(builder.build().subTopologies);
}

function member(
  memberId: string,
  owned: readonly TopicPartition[] = [],
  userData = new TaskAssignor(plan('a'), 'same').userData(),
): GroupMember {
  return { memberId, groupInstanceId: null, topics: ['a', 'b'], owned, userData };
}

function names(partitions: readonly TopicPartition[] = []): string[] {
  return partitions.map(({ topic, partition }) => `${topic}${partition}`);
}

describe('TaskAssignor', () => {
  it('keeps the partitions of one number of a sub-topology together', () => {
    const assignor = new TaskAssignor(plan(['a', 'b']), 'same');
    const assigned = assignor.assign(
      [member('m1'), member('m2')],
      new Map([
        ['a', 4],
        ['b', 2],
      ]),
    );
    for (const partitions of assigned.values()) {
      const here = names(partitions);
      for (const number of [0, 1]) expect(here.includes(`a${number}`)).toBe(here.includes(`b${number}`));
    }
    expect([...assigned.values()].flatMap(names).toSorted()).toEqual(['a0', 'a1', 'a2', 'a3', 'b0', 'b1']);
  });

  it('moves no more than it must when a member comes and goes', () => {
    const assignor = new TaskAssignor(plan('a'), 'same');
    const counts = new Map([['a', 6]]);
    const one = assignor.assign([member('m1')], counts);
    expect(names(one.get('m1'))).toHaveLength(6);
    const two = assignor.assign([member('m1', one.get('m1')), member('m2')], counts);
    expect(names(two.get('m1'))).toHaveLength(3);
    const three = assignor.assign([member('m1', two.get('m1')), member('m2', two.get('m2')), member('m3')], counts);
    expect(names(two.get('m1'))).toEqual(expect.arrayContaining(names(three.get('m1'))));
    expect(names(two.get('m2'))).toEqual(expect.arrayContaining(names(three.get('m2'))));
    const again = assignor.assign([member('m1', three.get('m1')), member('m2', three.get('m2'))], counts);
    expect(names(again.get('m1'))).toEqual(expect.arrayContaining(names(three.get('m1'))));
  });

  it('every task has one owner, and no member more than one above another', () => {
    const assignor = new TaskAssignor(plan(['a', 'b'], 'c'), 'same');
    const owners = fc.array(fc.tuple(fc.constantFrom('a', 'b', 'c'), fc.nat(7), fc.nat(4)), { maxLength: 24 });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 5 }), fc.nat(8), fc.nat(8), fc.nat(8), owners, (count, a, b, c, owned) => {
        const members = Array.from({ length: count }, (_, i) =>
          member(
            `m${i}`,
            owned.filter(([, , owner]) => owner === i).map(([topic, partition]) => ({ topic, partition })),
          ),
        );
        const assigned = assignor.assign(
          members,
          new Map([
            ['a', a],
            ['b', b],
            ['c', c],
          ]),
        );
        const all = [...assigned.values()].flatMap(names);
        expect(new Set(all).size).toBe(all.length);
        expect(all.length).toBe(a + b + c);
        const loads = [...assigned.values()].map(
          (partitions) => new Set(partitions.map(({ topic, partition }) => `${topic === 'c' ? 1 : 0}_${partition}`)).size,
        );
        expect(Math.max(...loads) - Math.min(...loads)).toBeLessThanOrEqual(1);
      }),
    );
  });

  it('assigns the topics that a pattern matches', () => {
    const assignor = new TaskAssignor(plan(/^t-/), 'same');
    const assigned = assignor.assign(
      [member('m1')],
      new Map([
        ['t-1', 1],
        ['t-2', 1],
        ['other', 1],
      ]),
    );
    expect(names(assigned.get('m1'))).toEqual(['t-10', 't-20']);
  });

  it('refuses a topic that two patterns match', () => {
    const overlapping = plan(/^t-/, /-1$/);
    expect(() => overlapping.reader('t-1')).toThrow(/topic 't-1' is read by/);
  });

  it('gives a member with another topology nothing, and tells it both fingerprints', () => {
    const running = new TaskAssignor(plan('a'), 'aaaa');
    const other = new TaskAssignor(plan('a'), 'bbbb');
    const counts = new Map([['a', 4]]);
    const members = [
      member('old', [{ topic: 'a', partition: 0 }], running.userData()),
      member('new-1', [], other.userData()),
      member('new-2', [], other.userData()),
    ];
    // Also when the leader itself is the one that is refused.
    for (const leader of [running, other]) {
      const assigned = leader.assign(members, counts);
      expect(names(assigned.get('old'))).toHaveLength(4);
      expect(names(assigned.get('new-1'))).toEqual([]);
      expect(() => running.onNote(leader.noteFor('old'))).not.toThrow();
      expect(() => other.onNote(leader.noteFor('new-1'))).toThrow(FatalError);
      expect(() => other.onNote(leader.noteFor('new-1'))).toThrow(/'aaaa'.*'bbbb'.*same topology/s);
    }
  });

  it('refuses a member whose words it does not understand', () => {
    const assignor = new TaskAssignor(plan('a'), 'same');
    const assigned = assignor.assign([member('m1'), member('strange', [], Buffer.from([0, 1, 2]))], new Map([['a', 2]]));
    expect(names(assigned.get('m1'))).toHaveLength(2);
    expect(names(assigned.get('strange'))).toEqual([]);
  });
});
