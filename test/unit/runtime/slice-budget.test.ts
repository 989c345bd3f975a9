import { describe, expect, it } from 'vitest';
import type { Producer } from '../../../src/kafka/port.ts';
import { SliceBudget } from '../../../src/runtime/slice-budget.ts';
import { ManualClock } from '../../support/manual-clock.ts';

function budget(limits: { records?: number; ms?: number; bytes?: number }) {
  const clock = new ManualClock();
  const producer = { bufferedBytes: 500 };
  const slice = new SliceBudget(clock, producer as unknown as Producer, { records: 1_000, ms: 8, bytes: 1_000, ...limits });
  return { clock, producer, slice };
}

/** Records of a slice, each of which costs what `each` does. */
function run(slice: SliceBudget, each: () => void = () => undefined): number {
  slice.start();
  let records = 0;
  while (slice.take()) {
    records++;
    each();
  }
  return records;
}

describe('SliceBudget', () => {
  it('ends at the number of records', () => {
    expect(run(budget({ records: 37 }).slice)).toBe(37);
  });

  it('ends when the time is over, soon after the records have become slow', () => {
    const { clock, slice } = budget({});
    expect(run(slice, () => clock.advance(0.01))).toBeGreaterThan(700);
    // After fast ones, at most one stride of slow records; then each is looked at.
    expect(run(slice, () => clock.advance(100))).toBeLessThanOrEqual(16);
    expect(run(slice, () => clock.advance(100))).toBe(1);
  });

  it('ends when so many bytes were written', () => {
    const { producer, slice } = budget({ bytes: 1_000 });
    const records = run(slice, () => (producer.bufferedBytes += 100));
    expect(records).toBeGreaterThanOrEqual(10);
    expect(records).toBeLessThan(26);
  });
});
