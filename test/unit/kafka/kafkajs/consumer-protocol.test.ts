import { describe, expect, it } from 'vitest';
import {
  assignmentUserData,
  decodeAssignment,
  decodeSubscription,
  encodeAssignment,
  encodeSubscription,
} from '../../../../src/kafka/kafkajs/consumer-protocol.ts';
import { FatalError } from '../../../../src/model/errors.ts';

const hex = (text: string): Buffer => Buffer.from(text.replaceAll(' ', ''), 'hex');

describe('subscription of a group member', () => {
  const owned = [
    { topic: 'a', partition: 0 },
    { topic: 'a', partition: 2 },
  ];

  it('is written as ConsumerProtocolSubscription version 2', () => {
    const bytes = encodeSubscription({ topics: ['a', 'b'], userData: Buffer.from([9]), owned, generation: 7 });
    expect(bytes).toEqual(hex('0002 00000002 0001 61 0001 62 00000001 09 00000001 0001 61 00000002 00000000 00000002 00000007'));
    expect(decodeSubscription(bytes)).toEqual({ topics: ['a', 'b'], userData: Buffer.from([9]), owned, generation: 7 });
  });

  it.each([
    ['0, without what is owned', '0000 00000001 0001 61 ffffffff', { owned: [], generation: -1 }],
    ['1, without a generation', '0001 00000001 0001 61 ffffffff 00000001 0001 61 00000001 00000002', { owned: [owned[1]], generation: -1 }],
    ['3, with a rack', '0003 00000001 0001 61 ffffffff 00000000 00000005 0002 7231', { owned: [], generation: 5 }],
    ['of the future', '0009 00000001 0001 61 ffffffff 00000000 00000005 ffff ffff', { owned: [], generation: 5 }],
  ])('is read in version %s', (_, bytes, rest) => {
    expect(decodeSubscription(hex(bytes))).toEqual({ topics: ['a'], userData: Buffer.alloc(0), ...rest });
  });

  it('is refused with a clear error when it is cut off', () => {
    expect(() => decodeSubscription(hex('0001 00000001 0001'))).toThrow(FatalError);
    expect(() => decodeSubscription(hex('0001 00000001 0001'))).toThrow(/subscription of a group member/);
  });
});

describe('assignment of a group member', () => {
  it('is written and read as ConsumerProtocolAssignment', () => {
    const partitions = [
      { topic: 'a', partition: 3 },
      { topic: 'b', partition: 0 },
      { topic: 'a', partition: 1 },
    ];
    const bytes = encodeAssignment(partitions);
    expect(bytes).toEqual(hex('0001 00000002 0001 61 00000002 00000003 00000001 0001 62 00000001 00000000 00000000'));
    expect(decodeAssignment(bytes)).toEqual([partitions[0], partitions[2], partitions[1]]);
  });

  it("carries the leader's note in its user data", () => {
    const bytes = encodeAssignment([{ topic: 'a', partition: 3 }], Buffer.from('note'));
    expect(assignmentUserData(bytes).toString()).toBe('note');
    expect(decodeAssignment(bytes)).toEqual([{ topic: 'a', partition: 3 }]);
    expect(assignmentUserData(encodeAssignment([])).length).toBe(0);
    expect(assignmentUserData(Buffer.alloc(0)).length).toBe(0);
  });

  it('holds nothing when it has no bytes', () => {
    expect(decodeAssignment(Buffer.alloc(0))).toEqual([]);
  });
});
