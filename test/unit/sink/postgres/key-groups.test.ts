import { describe, expect, it } from 'vitest';
import { idempotencyKeyText } from '../../../../src/sink/postgres/idempotency-key-text.ts';
import { KeyGroups } from '../../../../src/sink/postgres/key-groups.ts';
import { sinkBatch } from '../../../support/sink-batch.ts';

describe('stored idempotency keys', () => {
  it('are the keys themselves where Postgres can store and index them', () => {
    for (const key of ['orders/0/17', 'ünïcö', '😀', 'x'.repeat(1_024), '{"a":1}']) expect(idempotencyKeyText(key)).toBe(key);
  });

  it('are otherwise a prefix and a digest, and never those of another key', () => {
    const keys = ['a\0b', 'a\0c', '\ud800', '\udbff', '\ud800x', 'y'.repeat(1_025), `${'y'.repeat(1_024)}z`, 'ü'.repeat(600)];
    const stored = keys.map(idempotencyKeyText);
    expect(new Set(stored).size).toBe(keys.length);
    for (const text of stored) {
      expect(text).toMatch(/#sha256:[0-9a-f]{64}$/);
      expect(text).not.toContain('\0');
      expect(Buffer.from(text, 'utf8').toString('utf8')).toBe(text);
      expect(Buffer.byteLength(text)).toBeLessThan(1_024);
      expect(idempotencyKeyText(text)).toBe(text);
    }
  });
});

describe('records by key', () => {
  const { records } = sinkBatch(['b', 'a', 'b', 'c', 'a'].map((idempotencyKey, value) => ({ value, idempotencyKey })));

  it('the first by offset stands for its key, in offset order', () => {
    const groups = new KeyGroups(records);
    expect(groups.keys()).toEqual(['b', 'a', 'c']);
    expect(groups.first(new Set(['a', 'b'])).map((record) => record.value)).toEqual([0, 1]);
  });

  it('the next one takes its place when it is refused, until there is none', () => {
    const groups = new KeyGroups(records);
    const first = records[0]!;
    const second = groups.next(first);
    expect(second?.value).toBe(2);
    expect(groups.next(second!)).toBeUndefined();
  });

  it('duplicates are all that were not tried', () => {
    const groups = new KeyGroups(records);
    expect(groups.duplicates(new Set([records[0]!, records[1]!, records[3]!])).map((record) => record.value)).toEqual([2, 4]);
  });
});
