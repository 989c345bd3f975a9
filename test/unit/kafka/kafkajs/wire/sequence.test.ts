import { describe, expect, it } from 'vitest';
import { PartitionQueue } from '../../../../../src/kafka/kafkajs/partition-queue.ts';
import { advanceSequence } from '../../../../../src/kafka/kafkajs/wire/sequence.ts';

describe('the sequence of a producer', () => {
  it.each([
    [0, 1, 1],
    [2_147_483_646, 1, 2_147_483_647],
    [2_147_483_647, 1, 0],
    [2_147_483_645, 5, 2],
    [2_147_483_647, 2_147_483_647, 2_147_483_646],
  ])('is behind %i after %i records: %i', (sequence, count, expected) => {
    expect(advanceSequence(sequence, count)).toBe(expected);
  });

  it('wraps in the middle of a batch, and the next batch goes on behind it', () => {
    const queue = new PartitionQueue('t', 0);
    queue.takeSequence(2_147_483_646);
    expect(queue.takeSequence(5)).toBe(2_147_483_646);
    expect(queue.takeSequence(1)).toBe(3);
  });
});
