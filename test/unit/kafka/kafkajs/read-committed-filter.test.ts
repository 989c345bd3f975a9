import { describe, expect, it } from 'vitest';
import { scanFetchedBytes } from '../../../../src/kafka/kafkajs/fetched-bytes.ts';
import { ReadCommittedFilter } from '../../../../src/kafka/kafkajs/read-committed-filter.ts';
import type { AbortedTransaction } from '../../../../src/kafka/kafkajs/wire/fetch.ts';
import { RecordBatchDecoder } from '../../../../src/kafka/kafkajs/wire/record-batch-decoder.ts';
import { batchBytes, drain, markerBytes, texts } from '../../../support/record-batches.ts';

/** One record, or one marker where it is ABORT or COMMIT. */
type Entry = readonly [producerId: bigint, what: string];

function logOf(entries: readonly Entry[]): Buffer[] {
  return entries.map(([producerId, what], offset) => {
    const baseOffset = BigInt(offset);
    if (what === 'ABORT') return markerBytes(baseOffset, producerId, 'abort');
    if (what === 'COMMIT') return markerBytes(baseOffset, producerId, 'commit');
    return batchBytes({
      baseOffset,
      producerId,
      transactional: producerId >= 0n,
      records: [{ key: Buffer.from([0, 0, 0, 0]), value: what }],
    });
  });
}

function read(batches: readonly Buffer[], aborted: readonly AbortedTransaction[], from = 0): (string | null)[] {
  const bytes = Buffer.concat(batches.slice(from));
  const scanned = scanFetchedBytes('t', 0, bytes, BigInt(from), new ReadCommittedFilter(aborted));
  return texts(drain(new RecordBatchDecoder('t', 0, bytes, scanned.batches, BigInt(from))));
}

const a = 100n;
const b = 200n;
const none = -1n;

describe('ReadCommittedFilter', () => {
  it('hides aborted records of two transactions that are both open where the fetch begins (S1)', () => {
    const log = logOf([
      [a, 'a0'],
      [b, 'b1'],
      [a, 'a2'],
      [b, 'b3'],
      [none, 'free'],
      [a, 'ABORT'],
      [b, 'ABORT'],
    ]);
    const aborted = [
      { producerId: a, firstOffset: 0n },
      { producerId: b, firstOffset: 1n },
    ];
    for (let from = 0; from <= 4; from++) expect(read(log, aborted, from)).toEqual(['free']);
  });

  it('does not rely on the order of the list, which is that of the ends (S2)', () => {
    const log = logOf([
      [a, 'a0'],
      [b, 'b1'],
      [b, 'ABORT'],
      [a, 'a3'],
      [b, 'kept'],
      [a, 'ABORT'],
      [b, 'COMMIT'],
    ]);
    const aborted = [
      { producerId: b, firstOffset: 1n },
      { producerId: a, firstOffset: 0n },
    ];
    expect(read(log, aborted)).toEqual(['kept']);
    expect(read(log, aborted.toReversed())).toEqual(['kept']);
  });

  it('takes no record for an abort marker, although its key has the bytes of one (S3)', () => {
    const log = logOf([
      [a, 'a0'],
      [a, 'a1'],
      [a, 'ABORT'],
      [a, 'kept'],
      [a, 'COMMIT'],
    ]);
    expect(read(log, [{ producerId: a, firstOffset: 0n }])).toEqual(['kept']);
  });

  it('opens and closes several transactions of one producer in one answer', () => {
    const log = logOf([
      [a, 'a0'],
      [a, 'ABORT'],
      [a, 'kept 2'],
      [a, 'COMMIT'],
      [a, 'a4'],
      [a, 'ABORT'],
      [a, 'kept 6'],
      [a, 'COMMIT'],
    ]);
    const aborted = [
      { producerId: a, firstOffset: 4n },
      { producerId: a, firstOffset: 0n },
    ];
    expect(read(log, aborted)).toEqual(['kept 2', 'kept 6']);
  });

  it('hides an aborted transaction that begins before the fetch and ends behind it', () => {
    const log = logOf([
      [a, 'a0'],
      [a, 'a1'],
      [b, 'kept'],
      [a, 'a3'],
      [b, 'COMMIT'],
      [a, 'ABORT'],
    ]);
    expect(read(log.slice(0, 4), [{ producerId: a, firstOffset: 0n }], 1)).toEqual(['kept']);
  });

  it('is not closed by the commit marker of an older transaction of the same producer', () => {
    const batches = [
      markerBytes(0n, a, 'commit'),
      batchBytes({ baseOffset: 1n, producerId: a, transactional: true, records: [{ value: 'a1' }] }),
      markerBytes(2n, b, 'commit'),
      batchBytes({ baseOffset: 3n, producerId: a, transactional: true, records: [{ value: 'a3' }] }),
      markerBytes(4n, a, 'abort'),
    ];
    expect(read(batches, [{ producerId: a, firstOffset: 1n }])).toEqual([]);
  });

  it('keeps what a producer wrote without a transaction, also while another of its transactions is being aborted', () => {
    const idempotent = batchBytes({ baseOffset: 1n, producerId: a, transactional: false, records: [{ value: 'kept' }] });
    const log = [logOf([[a, 'a0']])[0]!, idempotent, markerBytes(2n, a, 'abort')];
    expect(read(log, [{ producerId: a, firstOffset: 0n }])).toEqual(['kept']);
  });

  it('opens every transaction that begins inside one batch', () => {
    const first = batchBytes({ baseOffset: 0n, producerId: a, transactional: true, records: [{ value: 'a0' }], lastOffsetDelta: 5 });
    const log = [
      first,
      ...logOf([[b, 'b0']]).map(() => batchBytes({ baseOffset: 6n, producerId: b, transactional: true, records: [{ value: 'b6' }] })),
    ];
    const aborted = [
      { producerId: a, firstOffset: 0n },
      { producerId: b, firstOffset: 3n },
    ];
    expect(read(log, aborted)).toEqual([]);
  });
});
