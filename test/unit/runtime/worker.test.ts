import { describe, expect, it } from 'vitest';
import { StreamsBuilder } from '../../../src/topology/streams-builder.ts';
import { string } from '../../../src/serde/string.ts';
import type { RuntimeOptions } from '../../../src/runtime/options.ts';
import type { Topology } from '../../../src/topology/topology.ts';
import type { FakeInput } from '../../support/fake-kafka.ts';
import { WorkerBench } from '../../support/worker-bench.ts';

const IN0 = { topic: 'in', partition: 0 };
const IN1 = { topic: 'in', partition: 1 };

function copy(map: (value: string) => string = (value) => value): Topology {
  const builder = new StreamsBuilder();
  builder.stream('in', { key: string(), value: string() }).mapValues(map).to('out', { value: string() });
  return builder.build();
}

function records(from: number, to: number): FakeInput[] {
  return Array.from({ length: to - from }, (_, i) => ({ key: `k${from + i}`, value: `v${from + i}` }));
}

async function started(topology: Topology = copy(), options: Partial<RuntimeOptions> = {}): Promise<WorkerBench> {
  const bench = new WorkerBench(topology, options);
  bench.cluster.createTopic('in', 2);
  bench.cluster.createTopic('out', 1);
  await bench.load(['out']);
  return bench;
}

describe('the order of the protocol', () => {
  it('takes a producer epoch before it reads offsets, and reads offsets before it starts', async () => {
    const bench = await started();
    bench.consumer.assign([IN0]);
    await bench.steps(2);
    expect(bench.cluster.journal).toEqual(['init', 'committed', 'startFrom in-0@0']);
    expect(bench.states).toEqual(['rebalancing', 'running'].slice(-bench.states.length));
  });

  it('flushes outputs, then sends offsets, then ends the transaction', async () => {
    const bench = await started();
    bench.consumer.assign([IN0]);
    await bench.steps(2);
    bench.cluster.journal.length = 0;
    bench.cluster.feed('in', 0, records(0, 3));
    await bench.until(() => bench.cluster.outputs.length === 3);
    expect(bench.cluster.journal).toEqual(['flush', 'sendOffsets in-0@3', 'endTxn']);
    expect(bench.cluster.groupOffsets.get('in/0')).toEqual({ offset: 3n, metadata: 'v1:2' });
  });

  it('calls each fail point between the steps that it stands between', async () => {
    const journal: string[] = [];
    const bench = await started(copy(), {
      failPoints: (name) => {
        journal.push(...bench.cluster.journal.splice(0), name);
      },
    });
    bench.consumer.assign([IN0]);
    bench.cluster.feed('in', 0, records(0, 2));
    await bench.until(() => bench.cluster.outputs.length === 2);
    expect(journal.slice(journal.indexOf('mid-processing'))).toEqual([
      'mid-processing',
      'before-flush',
      'flush',
      'after-flush',
      'sendOffsets in-0@2',
      'after-send-offsets',
      'endTxn',
      'after-end-txn',
    ]);
    expect(journal).toContain('after-poll');
  });

  it('does not commit more often than the interval', async () => {
    const bench = await started();
    bench.consumer.batchRecords = 1;
    bench.consumer.assign([IN0]);
    bench.cluster.feed('in', 0, records(0, 5));
    await bench.until(() => bench.cluster.outputs.length === 5);
    // The clock of the bench stands while there is work, so that all five fell into one interval after the first commit.
    expect(bench.cluster.journal.filter((call) => call === 'endTxn').length).toBeLessThanOrEqual(2);
  });

  it('commits early when many bytes were written', async () => {
    const bench = await started(copy(), { commitIntervalMs: 5_000, commitBytes: 20 });
    bench.consumer.batchRecords = 3;
    bench.consumer.assign([IN0]);
    await bench.steps(2);
    const began = bench.clock.now();
    bench.cluster.feed('in', 0, records(0, 30));
    await bench.until(() => bench.cluster.outputs.length >= 20);
    expect(bench.clock.now() - began).toBeLessThan(2_000);
  });
});

describe('positions', () => {
  it('commits where it stands in the middle of a batch', async () => {
    const bench = await started(copy(), { maxSliceRecords: 3, commitBytes: 1 });
    bench.consumer.assign([IN0]);
    bench.cluster.feed('in', 0, records(0, 8));
    await bench.until(() => bench.cluster.groupOffsets.has('in/0'));
    expect(bench.cluster.groupOffsets.get('in/0')?.offset).toBe(3n);
    expect(bench.cluster.values('out')).toEqual(['v0', 'v1', 'v2']);
  });

  it('passes over markers at the end of the log, so that the lag becomes 0', async () => {
    const bench = await started();
    bench.consumer.assign([IN0]);
    bench.cluster.feed('in', 0, records(0, 2));
    bench.cluster.feedMarker('in', 0);
    await bench.until(() => bench.cluster.groupOffsets.get('in/0')?.offset === 3n);
    expect(bench.worker.lags()).toEqual([{ topic: 'in', partition: 0, lag: 0 }]);
  });

  it('commits a position that moved over markers only, once a second at most', async () => {
    const bench = await started();
    bench.consumer.assign([IN0]);
    await bench.until(() => bench.cluster.groupOffsets.get('in/0')?.offset === 0n);
    const began = bench.clock.now();
    bench.cluster.journal.length = 0;
    for (let i = 0; i < 40; i++) {
      bench.cluster.feedMarker('in', 0);
      await bench.worker.step();
    }
    const ends = bench.cluster.journal.filter((call) => call === 'endTxn').length;
    expect(ends).toBeLessThanOrEqual(Math.ceil((bench.clock.now() - began) / 1000));
    await bench.until(() => bench.cluster.groupOffsets.get('in/0')?.offset === 40n);
    bench.cluster.journal.length = 0;
    await bench.steps(50);
    expect(bench.cluster.journal).toEqual([]);
  });

  it('goes on at the committed offset, with the stream time that was stored beside it', async () => {
    const bench = await started();
    bench.cluster.feed('in', 0, [
      { key: 'a', value: 'old', timestamp: 10 },
      { key: 'a', value: 'new', timestamp: 5 },
    ]);
    bench.cluster.groupOffsets.set('in/0', { offset: 1n, metadata: 'v1:99' });
    bench.consumer.assign([IN0]);
    await bench.until(() => bench.cluster.outputs.length === 1);
    expect(bench.cluster.values('out')).toEqual(['new']);
    expect(bench.cluster.groupOffsets.get('in/0')).toEqual({ offset: 2n, metadata: 'v1:99' });
  });

  it("starts at the end of the log with startFrom 'latest', and stores that at once", async () => {
    const bench = await started(copy(), { startFrom: 'latest' });
    bench.cluster.feed('in', 0, records(0, 4));
    bench.consumer.assign([IN0]);
    await bench.until(() => bench.cluster.groupOffsets.has('in/0'));
    expect(bench.cluster.groupOffsets.get('in/0')?.offset).toBe(4n);
    expect(bench.cluster.outputs).toEqual([]);
  });

  it("stops without a committed offset with startFrom 'error'", async () => {
    const bench = await started(copy(), { startFrom: 'error' });
    bench.consumer.assign([IN0]);
    await expect(bench.steps(3)).rejects.toThrow(/no committed offset for in-0.*startFrom/s);
  });

  it('stops at a position outside of the log by default, and names the way out', async () => {
    const bench = await started();
    bench.consumer.assign([IN0]);
    await bench.steps(2);
    bench.consumer.outOfRange(IN0, 5n, 10n, 20n);
    await expect(bench.steps(2)).rejects.toThrow(/position 5 of in-0 .*10 to 20.*offsetOutOfRange/s);
  });

  it('goes on at the start of the log where offsetOutOfRange says so, and commits that', async () => {
    const bench = await started(copy(), { offsetOutOfRange: 'earliest' });
    bench.consumer.assign([IN0]);
    await bench.steps(2);
    bench.cluster.feed('in', 0, records(0, 6));
    bench.consumer.outOfRange(IN0, 0n, 4n, 6n);
    await bench.until(() => bench.cluster.groupOffsets.get('in/0')?.offset === 6n);
    expect(bench.cluster.journal).toContain('startFrom in-0@4');
  });
});

describe('several inputs', () => {
  it('processes the oldest timestamp first across the partitions of a task', async () => {
    const builder = new StreamsBuilder();
    builder.stream(['a', 'b'], { key: string(), value: string() }).to('out');
    const bench = new WorkerBench(builder.build());
    for (const topic of ['a', 'b', 'out']) bench.cluster.createTopic(topic, 1);
    await bench.load(['out']);
    bench.cluster.feed(
      'a',
      0,
      [1, 4, 5].map((timestamp) => ({ key: 'k', value: `a${timestamp}`, timestamp })),
    );
    bench.cluster.feed(
      'b',
      0,
      [2, 3, 6].map((timestamp) => ({ key: 'k', value: `b${timestamp}`, timestamp })),
    );
    bench.consumer.assign([
      { topic: 'a', partition: 0 },
      { topic: 'b', partition: 0 },
    ]);
    await bench.until(() => bench.cluster.outputs.length === 6);
    expect(bench.cluster.values('out')).toEqual(['a1', 'b2', 'b3', 'a4', 'a5', 'b6']);
    expect(bench.worker.tasks()).toBe(1);
  });

  it('pauses a partition at the high-water mark and resumes it at half of it', async () => {
    const bench = await started(copy(), { maxBufferedBytes: 100, maxSliceRecords: 2, commitIntervalMs: 100 });
    bench.consumer.batchRecords = 50;
    bench.consumer.assign([IN0]);
    bench.cluster.feed('in', 0, records(0, 200));
    await bench.until(() => bench.cluster.outputs.length === 200, 2_000);
    expect(bench.consumer.paused[0]).toBe('pause in-0');
    expect(bench.consumer.paused[1]).toBe('resume in-0');
    expect(bench.cluster.values('out')).toEqual(records(0, 200).map(({ value }) => value));
  });
});

describe('rebalance', () => {
  it('commits what is done when partitions are revoked, and processes nothing until the next assignment', async () => {
    const bench = await started(copy(), { commitIntervalMs: 5_000, maxSliceRecords: 2 });
    bench.consumer.assign([IN0, IN1]);
    await bench.steps(2);
    bench.cluster.feed('in', 0, records(0, 6));
    await bench.steps(1);
    bench.consumer.revoke([IN0, IN1]);
    await bench.steps(1);
    const committed = bench.cluster.groupOffsets.get('in/0')?.offset ?? 0n;
    expect(committed).toBeGreaterThan(0n);
    expect(bench.cluster.outputs.length).toBe(Number(committed));
    await bench.steps(5);
    expect(bench.cluster.outputs.length).toBe(Number(committed));
    expect(bench.states.at(-1)).toBe('rebalancing');
  });

  it('goes on with a retained partition without reading its offset again, from the records that it has', async () => {
    const bench = await started(copy(), { commitIntervalMs: 10, maxSliceRecords: 2 });
    bench.consumer.assign([IN0]);
    await bench.steps(2);
    bench.cluster.feed('in', 0, records(0, 6));
    await bench.steps(1);
    bench.consumer.revoke([IN0]);
    await bench.steps(1);
    bench.cluster.journal.length = 0;
    bench.consumer.assign([IN0, IN1], [IN0]);
    await bench.until(() => bench.cluster.outputs.length === 6);
    expect(bench.cluster.journal.filter((call) => call.startsWith('startFrom'))).toEqual(['startFrom in-1@0']);
    expect(bench.cluster.journal).not.toContain('init');
    expect(bench.cluster.values('out')).toEqual(records(0, 6).map(({ value }) => value));
  });

  it('reads the offset of a partition again that comes back without being retained', async () => {
    const bench = await started();
    bench.consumer.assign([IN0]);
    bench.cluster.feed('in', 0, records(0, 4));
    await bench.until(() => bench.cluster.outputs.length === 4);
    bench.consumer.revoke([IN0]);
    await bench.steps(1);
    // Another owner has processed two more.
    bench.cluster.feed('in', 0, records(4, 8));
    bench.cluster.groupOffsets.set('in/0', { offset: 6n, metadata: '' });
    bench.consumer.assign([IN0]);
    await bench.until(() => bench.cluster.outputs.length === 6);
    expect(bench.cluster.values('out').slice(4)).toEqual(['v6', 'v7']);
  });

  it('aborts and commits nothing when partitions are lost', async () => {
    const bench = await started(copy(), { commitIntervalMs: 5_000 });
    bench.consumer.assign([IN0]);
    await bench.until(() => bench.cluster.groupOffsets.has('in/0'));
    bench.cluster.feed('in', 0, records(0, 4));
    await bench.steps(2);
    bench.cluster.journal.length = 0;
    bench.consumer.lose([IN0]);
    await bench.steps(3);
    expect(bench.cluster.journal).toEqual(['abort']);
    expect(bench.cluster.outputs).toEqual([]);
    bench.consumer.assign([IN0]);
    await bench.until(() => bench.cluster.outputs.length === 4);
    expect(bench.cluster.values('out')).toEqual(['v0', 'v1', 'v2', 'v3']);
  });

  it('a zombie commits nothing: the group has gone on without it', async () => {
    const bench = await started();
    bench.consumer.assign([IN0]);
    await bench.steps(2);
    bench.cluster.feed('in', 0, records(0, 4));
    bench.consumer.expel();
    await bench.until(() => bench.cluster.journal.some((call) => call.startsWith('sendOffsets')));
    expect(bench.cluster.journal.at(-1)).toBe('abort');
    expect(bench.cluster.outputs).toEqual([]);
    expect(bench.worker.tasks()).toBe(0);
    bench.consumer.assign([IN0]);
    await bench.until(() => bench.cluster.outputs.length === 4);
  });

  it('begins again from what is committed when a member is called stale and nothing follows', async () => {
    const bench = await started(copy(), { sessionTimeoutMs: 6_000, heartbeatIntervalMs: 500 });
    const { StaleGenerationError } = await import('../../../src/model/errors.ts');
    bench.consumer.assign([IN0]);
    await bench.steps(2);
    bench.cluster.fail('sendOffsets', new StaleGenerationError('passing'));
    bench.cluster.feed('in', 0, records(0, 4));
    await bench.until(() => bench.cluster.outputs.length === 4);
    expect(bench.cluster.values('out')).toEqual(['v0', 'v1', 'v2', 'v3']);
  });
});

describe('closing', () => {
  it('commits what is done', async () => {
    const bench = await started(copy(), { commitIntervalMs: 5_000 });
    bench.consumer.assign([IN0]);
    await bench.steps(2);
    bench.cluster.feed('in', 0, records(0, 4));
    await bench.steps(2);
    expect(bench.cluster.outputs).toEqual([]);
    bench.worker.requestStop();
    await bench.worker.run();
    expect(bench.cluster.values('out')).toEqual(['v0', 'v1', 'v2', 'v3']);
    expect(bench.cluster.groupOffsets.get('in/0')?.offset).toBe(4n);
  });
});
