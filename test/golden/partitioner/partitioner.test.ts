import { describe, expect, it } from 'vitest';
import { murmur2, partitionForKey } from '../../../src/model/partitioner.ts';
import golden from './murmur2.json' with { type: 'json' };

describe('partitionForKey against the Java client', () => {
  it('has keys to compare', () => {
    expect(golden.keys.length).toBeGreaterThan(100);
  });

  it.each(golden.keys)('agrees on $hex', ({ hex, text, murmur2: hash, partitions }) => {
    const key = Buffer.from(hex, 'hex');
    expect(murmur2(key)).toBe(hash);
    for (const [count, partition] of Object.entries(partitions)) {
      expect(partitionForKey(key, Number(count))).toBe(partition);
      expect(partitionForKey(text ?? key, Number(count))).toBe(partition);
    }
  });

  it('hashes text that is longer than its scratch buffer as the same bytes', () => {
    const text = 'ä€😀'.repeat(1_000);
    expect(partitionForKey(text, 97)).toBe(partitionForKey(Buffer.from(text, 'utf8'), 97));
  });
});
