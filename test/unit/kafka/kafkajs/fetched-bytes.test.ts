import { describe, expect, it } from 'vitest';
import { scanFetchedBytes } from '../../../../src/kafka/kafkajs/fetched-bytes.ts';
import { ReadCommittedFilter } from '../../../../src/kafka/kafkajs/read-committed-filter.ts';
import { FatalError } from '../../../../src/model/errors.ts';
import { batchBytes, markerBytes, resealed } from '../../../support/record-batches.ts';

const scan = (bytes: Buffer, from = 0n) => scanFetchedBytes('t', 0, bytes, from, undefined);
const three = (baseOffset: bigint): Buffer => batchBytes({ baseOffset, records: [{}, {}, {}] });

describe('scanFetchedBytes', () => {
  it('moves the position behind every whole batch', () => {
    const { batches, nextOffset, damage } = scan(Buffer.concat([three(5n), three(8n)]), 6n);
    expect(batches.map(({ baseOffset }) => baseOffset)).toEqual([5n, 8n]);
    expect({ nextOffset, damage }).toEqual({ nextOffset: 11n, damage: undefined });
  });

  it('gives nothing and stays where it is without a byte', () => {
    expect(scan(Buffer.alloc(0), 42n)).toEqual({ batches: [], nextOffset: 42n, leaderEpoch: -1, damage: undefined });
  });

  it('ignores a batch that is cut off at the end, wherever it is cut', () => {
    const whole = three(0n);
    const next = three(3n);
    for (let length = 0; length < next.length; length++) {
      const { batches, nextOffset, damage } = scan(Buffer.concat([whole, next.subarray(0, length)]));
      expect([batches.length, nextOffset, damage]).toEqual([1, 3n, undefined]);
    }
  });

  it('passes over batches that compaction has emptied, and over the holes that it leaves', () => {
    const emptied = batchBytes({ baseOffset: 10n, records: [], lastOffsetDelta: 4, producerId: 1n });
    const shortened = batchBytes({ baseOffset: 20n, records: [{}], lastOffsetDelta: 9 });
    expect(scan(emptied, 10n)).toEqual({ batches: [], nextOffset: 15n, leaderEpoch: -1, damage: undefined });
    const { batches, nextOffset } = scan(Buffer.concat([emptied, shortened]), 10n);
    expect(batches.map(({ baseOffset }) => baseOffset)).toEqual([20n]);
    expect(nextOffset).toBe(30n);
  });

  it('passes over control batches, with and without a filter', () => {
    for (const filter of [undefined, new ReadCommittedFilter([])]) {
      const { batches, nextOffset } = scanFetchedBytes('t', 0, markerBytes(3n, 1n, 'commit'), 3n, filter);
      expect({ batches, nextOffset }).toEqual({ batches: [], nextOffset: 4n });
    }
  });

  it('tells the epoch of the leader that wrote the last batch', () => {
    const bytes = Buffer.from(three(10n));
    bytes.writeInt32BE(7, 12);
    expect(scan(bytes, 10n).leaderEpoch).toBe(7);
  });

  it('never moves the position back for a batch that ends below it', () => {
    expect(scan(three(0n), 100n)).toEqual({ batches: [], nextOffset: 100n, leaderEpoch: -1, damage: undefined });
  });

  it('finds a byte that was changed on its way, names the batch, and keeps what stands before it', () => {
    const good = three(0n);
    const bad = three(3n);
    for (const at of [18, 22, 40, 58, bad.length - 1]) {
      const changed = Buffer.from(bad);
      changed[at] = changed[at]! ^ 0x55;
      const { batches, nextOffset, damage } = scan(Buffer.concat([good, changed, three(6n)]));
      expect([batches.length, nextOffset]).toEqual([1, 3n]);
      expect(damage).toMatch(/t\/0: the batch at offset 3 is damaged.*CRC/);
    }
  });

  it('finds an impossible length', () => {
    for (const length of [-1, 0, 4, 20]) {
      const bad = three(3n);
      bad.writeInt32BE(length, 8);
      expect(scan(bad, 3n)).toMatchObject({ nextOffset: 3n, damage: expect.stringContaining('length is impossible') as string });
    }
  });

  it('finds a batch that ends before it begins', () => {
    expect(scan(batchBytes({ baseOffset: 3n, records: [{}], lastOffsetDelta: -1 }), 3n).damage).toContain('t/0');
  });

  it.each([0, 1])('refuses message format %i, and says what to do', (magic) => {
    const old = three(3n);
    old[16] = magic;
    expect(() => scan(resealed(old), 3n)).toThrow(FatalError);
    expect(() => scan(resealed(old), 3n)).toThrow(new RegExp(`t/0: the record at offset 3 is stored in message format ${magic}`));
  });

  it('says that it does not know a format of the future', () => {
    const later = three(3n);
    later[16] = 3;
    expect(scan(later, 3n).damage).toContain('message format is 3');
  });
});
