import { describe, expect, it } from 'vitest';
import { decodeAssignment, encodeSubscription } from '../../../../src/kafka/kafkajs/consumer-protocol.ts';
import { assignGroup, groupMembers } from '../../../../src/kafka/kafkajs/group-assignment.ts';
import type { Assignor } from '../../../../src/kafka/port.ts';
import { FatalError } from '../../../../src/model/errors.ts';
import type { TopicPartition } from '../../../../src/model/topic-partition.ts';

const p = (partition: number, topic = 't'): TopicPartition => ({ topic, partition });

function joined(memberId: string, owned: readonly TopicPartition[], generation: number) {
  const metadata = encodeSubscription({ topics: ['t'], userData: Buffer.from(memberId), owned, generation });
  return { memberId, groupInstanceId: null, metadata };
}

describe('groupMembers', () => {
  it('tells the assignor what each member owns, but nothing that is out of date', () => {
    const members = groupMembers([joined('new', [], -1), joined('behind', [p(0), p(1)], 4), joined('current', [p(1)], 5)]);
    expect(members.map(({ memberId, owned }) => [memberId, owned])).toEqual([
      ['new', []],
      ['behind', []],
      ['current', [p(1)]],
    ]);
    expect(members[2]).toMatchObject({ topics: ['t'], userData: Buffer.from('current'), groupInstanceId: null });
  });
});

describe('assignGroup', () => {
  const members = groupMembers([joined('a', [], -1), joined('b', [], -1)]);
  const counts = new Map([['t', 2]]);
  const assignorOf = (assignment: Record<string, TopicPartition[]>): Assignor => ({
    name: 'test',
    userData: () => Buffer.alloc(0),
    assign: () => new Map(Object.entries(assignment)),
  });

  it('gives every member its share, and an empty one where the assignor names none', () => {
    const shares = assignGroup(assignorOf({ a: [p(1), p(0)] }), members, counts);
    expect([...shares].map(([memberId, bytes]) => [memberId, decodeAssignment(bytes)])).toEqual([
      ['a', [p(1), p(0)]],
      ['b', []],
    ]);
  });

  it.each([
    ['two owners', { a: [p(0)], b: [p(0)] }, /gives t\/0 to both 'a' and 'b'/],
    ['a stranger', { c: [p(0)] }, /'c', who is no member/],
    ['a partition that does not exist', { a: [p(2)] }, /t\/2, which does not exist/],
    ['a topic that does not exist', { a: [p(0, 'u')] }, /u\/0, which does not exist/],
  ])('refuses %s', (_, assignment, message) => {
    expect(() => assignGroup(assignorOf(assignment), members, counts)).toThrow(FatalError);
    expect(() => assignGroup(assignorOf(assignment), members, counts)).toThrow(message);
  });
});
