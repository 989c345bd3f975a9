import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { StreamsBuilder } from '../../../src/index.ts';
import { RetriableError, SinkFatalError, SinkRetriableError, StaleGenerationError } from '../../../src/model/errors.ts';
import { textHeader } from '../../../src/model/headers.ts';
import { string } from '../../../src/serde/string.ts';
import type { FakeInput } from '../../support/fake-kafka.ts';
import { fakeSink, type FakeSinkOptions, FakeTarget } from '../../support/fake-sink.ts';
import { type SinkBenchOptions, SinkWorkerBench } from '../../support/sink-worker-bench.ts';

const IN0 = { topic: 'in', partition: 0 };
const IN1 = { topic: 'in', partition: 1 };

function records(from: number, to: number): FakeInput[] {
  return Array.from({ length: to - from }, (_, i) => ({ key: `k${from + i}`, value: `v${from + i}` }));
}

function values(from: number, to: number): string[] {
  return Array.from({ length: to - from }, (_, i) => `v${from + i}`);
}

interface TrialOptions extends SinkBenchOptions {
  readonly sink?: FakeSinkOptions;
  readonly map?: (value: string) => string[];
  readonly target?: FakeTarget;
}

async function started({ sink = {}, map = (value) => [value], target = new FakeTarget(), ...options }: TrialOptions = {}) {
  const builder = new StreamsBuilder();
  builder.stream('in', { key: string(), value: string() }).flatMapValues(map).sink(fakeSink(target, sink), { name: 'store' });
  const bench = new SinkWorkerBench(builder.build(), options);
  bench.cluster.createTopic('in', 2);
  await bench.worker.start();
  return { bench, target };
}

describe('where a partition begins', () => {
  it('is what the sink says, and not what the group says', async () => {
    const { bench, target } = await started();
    target.fences.set('in/0', { position: 7n, epoch: 3 });
    bench.cluster.feed('in', 0, records(0, 10));
    bench.cluster.groupOffsets.set('in/0', { offset: 4n, metadata: '' });
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 3);
    expect(target.values).toEqual(values(7, 10));
    expect(bench.cluster.journal.filter((line) => line.startsWith('startFrom'))).toEqual(['startFrom in-0@7']);
    expect(target.journal).toContain('claim in-0@4');
  });

  it('without an offset anywhere is the beginning of the log, or its end, or an error', async () => {
    const early = await started();
    early.bench.cluster.feed('in', 0, records(0, 3));
    early.bench.consumer.assign([IN0]);
    await early.bench.until(() => early.target.applied.length === 3);

    const late = await started({ runtime: { startFrom: 'latest' } });
    late.bench.cluster.feed('in', 0, records(0, 3));
    late.bench.consumer.assign([IN0]);
    await late.bench.until(() => late.bench.cluster.journal.includes('startFrom in-0@3'));

    const strict = await started({ runtime: { startFrom: 'error' } });
    strict.bench.consumer.assign([IN0]);
    await expect(strict.bench.steps(3)).rejects.toThrow(/no committed offset for in-0/);
  });

  it('waits for offsets which a transaction may still change', async () => {
    const { bench, target } = await started();
    bench.cluster.feed('in', 0, records(0, 2));
    bench.cluster.fail('committed', new RetriableError('unstable'), { times: 2 });
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 2);
    expect(bench.cluster.journal.slice(0, 3)).toEqual(['committed !', 'committed !', 'committed']);
  });

  it('beyond the end of the log is an error that says what may have happened, and skips nothing', async () => {
    const { bench, target } = await started({ runtime: { offsetOutOfRange: 'earliest' } });
    target.fences.set('in/0', { position: 50n, epoch: 1 });
    bench.cluster.feed('in', 0, records(0, 10));
    bench.consumer.assign([IN0]);
    await expect(bench.steps(5)).rejects.toThrow(SinkFatalError);
    await expect(bench.steps(5)).rejects.toThrow(/applied up to offset 50, but its log ends at 10/);
    expect(target.applied).toEqual([]);
  });

  it('before the beginning of the log is an error, or a gap that is logged where the policy says so', async () => {
    const strict = await started();
    strict.target.fences.set('in/0', { position: 2n, epoch: 1 });
    strict.bench.cluster.feed('in', 0, records(0, 10));
    strict.bench.cluster.log('in', 0).start = 5n;
    strict.bench.consumer.assign([IN0]);
    await expect(strict.bench.steps(5)).rejects.toThrow(/applied up to offset 2, but its log begins at 5/);

    const lenient = await started({ runtime: { offsetOutOfRange: 'earliest' } });
    lenient.target.fences.set('in/0', { position: 2n, epoch: 1 });
    lenient.bench.cluster.feed('in', 0, records(0, 10));
    lenient.bench.cluster.log('in', 0).start = 5n;
    lenient.bench.consumer.assign([IN0]);
    await lenient.bench.until(() => lenient.target.applied.length === 5);
    expect(lenient.target.values).toEqual(values(5, 10));
    // The gap is part of the first batch: the fence stood at 2.
    expect(lenient.target.journal.find((line) => line.startsWith('write'))).toMatch(/^write in-0@2\.\./);
    expect(lenient.bench.messages('warn')).toContain('records were deleted before they were applied: going on with a gap');
  });

  it('names topics that do not exist before anything is read', async () => {
    const builder = new StreamsBuilder();
    builder.stream('missing', { key: string(), value: string() }).sink(fakeSink(new FakeTarget()), { name: 'store' });
    const bench = new SinkWorkerBench(builder.build());
    await expect(bench.worker.start()).rejects.toThrow(/topics that do not exist: missing/);
  });
});

describe('batches', () => {
  it('hold no more than the sink takes, follow each other without a gap, and end with the log', async () => {
    const { bench, target } = await started({ sink: { maxBatchRecords: 4 } });
    bench.cluster.feed('in', 0, records(0, 10));
    bench.cluster.feedMarker('in', 0);
    bench.consumer.assign([IN0]);
    await bench.until(() => target.fences.get('in/0')?.position === 11n);
    const writes = target.journal.filter((line) => line.startsWith('write'));
    expect(writes.slice(0, 2)).toEqual(['write in-0@0..4 4', 'write in-0@4..8 4']);
    expect(writes[2]).toMatch(/^write in-0@8\.\./);
    expect(writes.at(-1)).toMatch(/\.\.11 \d$/);
    expect(target.values).toEqual(values(0, 10));
  });

  it('of 100,000 records in one poll are cut to size', async () => {
    const { bench, target } = await started({ sink: { maxBatchRecords: 500 } });
    bench.consumer.batchRecords = 100_000;
    bench.cluster.feed('in', 0, records(0, 100_000));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 100_000, 5_000);
    expect(target.journal.filter((line) => line.startsWith('write')).length).toBe(200);
    expect(target.values).toEqual(values(0, 100_000));
  });

  it('keep the results of one record together', async () => {
    const { bench, target } = await started({ sink: { maxBatchRecords: 4 }, map: (value) => [`${value}a`, `${value}b`, `${value}c`] });
    bench.cluster.feed('in', 0, records(0, 3));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 9);
    expect(target.journal.filter((line) => line.startsWith('write'))).toEqual(['write in-0@0..2 6', 'write in-0@2..3 3']);
  });

  it('without a record still move the position now and then, so that a restart need not look at everything again', async () => {
    const { bench, target } = await started({ map: () => [] });
    bench.cluster.feed('in', 0, records(0, 30));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.fences.get('in/0')?.position === 30n);
    expect(target.journal.filter((line) => line.startsWith('write')).length).toBeLessThan(4);
    await bench.until(() => bench.committed('in', 0) === 30n);
  });

  it('of different partitions are written at the same time, up to the bound of the sink', async () => {
    const { bench, target } = await started({ sink: { concurrency: 2 } });
    let open: () => void = () => undefined;
    target.gate = new Promise((resolve) => (open = resolve));
    bench.cluster.feed('in', 0, records(0, 2));
    bench.cluster.feed('in', 1, records(0, 2));
    bench.consumer.assign([IN0, IN1]);
    await bench.until(() => target.mostAtOnce === 2);
    open();
    await bench.until(() => target.applied.length === 4);

    const single = await started({ sink: { concurrency: 1 } });
    single.bench.cluster.feed('in', 0, records(0, 20));
    single.bench.cluster.feed('in', 1, records(0, 20));
    single.bench.consumer.assign([IN0, IN1]);
    await single.bench.until(() => single.target.applied.length === 40);
    expect(single.target.mostAtOnce).toBe(1);
  });
});

describe('idempotency keys', () => {
  it('come from the header, else from the coordinates, and several results of one record get different ones', async () => {
    const { bench, target } = await started({ map: (value) => [`${value}a`, `${value}b`] });
    bench.cluster.feed('in', 0, [
      { key: 'k', value: 'x' },
      { key: 'k', value: 'y', headers: [textHeader('Idempotency-Key', 'order-7')] },
    ]);
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 4);
    expect(target.keys).toEqual(['in/0/0', 'in/0/0~1', 'order-7', 'order-7/1']);
  });

  it('of one record that comes by two ways are different, and the same at each redelivery', async () => {
    const target = new FakeTarget();
    const builder = new StreamsBuilder();
    const input = builder.stream('in', { key: string(), value: string() });
    input
      .mapValues((value) => `${value}!`)
      .merge(input)
      .sink(fakeSink(target), { name: 'store' });
    const bench = new SinkWorkerBench(builder.build());
    bench.cluster.createTopic('in', 1);
    await bench.worker.start();
    bench.cluster.feed('in', 0, [
      { key: 'k', value: 'x', headers: [textHeader('idempotency-key', 'order-7')] },
      { key: 'k', value: 'y' },
    ]);
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 4);
    expect(target.keys).toEqual(['order-7', 'order-7~1', 'in/0/1', 'in/0/1~1']);
  });

  it('are what the function of the sink says, which is taken at its word', async () => {
    const { bench, target } = await started({
      sink: { idempotencyKey: (value) => (value === 'v1' ? null : 'same') },
    });
    bench.cluster.feed('in', 0, records(0, 3));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 3);
    expect(target.keys).toEqual(['same', 'in/0/1', 'same']);
  });
});

describe('a record that cannot be processed', () => {
  const map = (value: string): string[] => {
    if (value === 'v3') throw new RangeError('no v3');
    return [value];
  };

  it('stops the stage by default, after what came before it is written and committed', async () => {
    const { bench, target } = await started({ map });
    bench.cluster.feed('in', 0, records(0, 6));
    bench.consumer.assign([IN0]);
    await expect(bench.until(() => false)).rejects.toThrow(/stage 'store': the record in-0@3 cannot be processed .*no v3/);
    expect(target.values).toEqual(values(0, 3));
    expect(target.fences.get('in/0')?.position).toBe(3n);
  });

  it('is skipped and counted where the policy says so', async () => {
    const { bench, target } = await started({ map, runtime: { onProcessingError: 'skip' } });
    bench.cluster.feed('in', 0, records(0, 6));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.fences.get('in/0')?.position === 6n);
    expect(target.values).toEqual(['v0', 'v1', 'v2', 'v4', 'v5']);
    expect(bench.counters.skipped).toBe(1);
  });

  it('is handed to the sink as a dead letter with what came in, in the batch that it belongs to', async () => {
    const { bench, target } = await started({ map, runtime: { onProcessingError: 'dead-letter' } });
    bench.cluster.feed('in', 0, records(0, 6));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.fences.get('in/0')?.position === 6n);
    expect(target.refused).toMatchObject([
      { idempotencyKey: 'in/0/3', source: { key: Buffer.from('k3'), value: Buffer.from('v3') }, reason: expect.stringContaining('no v3') },
    ]);
    expect(bench.counters.deadLettered).toBe(1);
    expect(target.applied.length).toBe(5);
  });

  it('gives nothing, also where it had given something before it failed', async () => {
    const { bench, target } = await started({
      map: (value) => (value === 'v1' ? (['half', 5 as never, null as never] as string[]) : [value]),
      sink: {
        idempotencyKey: (value) => {
          if (value === 5) throw new RangeError('no key for 5');
          return null;
        },
      },
      runtime: { onProcessingError: 'skip' },
    });
    bench.cluster.feed('in', 0, records(0, 3));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.fences.get('in/0')?.position === 3n);
    expect(target.values).toEqual(['v0', 'v2']);
  });

  it('cannot become a dead letter where the sink keeps none: said at construction', async () => {
    await expect(started({ sink: { keepsDeadLetters: false }, runtime: { onDeserialisationError: 'dead-letter' } })).rejects.toThrow(
      /its fake sink keeps none/,
    );
  });
});

describe('a target that cannot be written to', () => {
  it('is tried again until it can, without a record lost, doubled or out of order, and told of once', async () => {
    const { bench, target } = await started();
    target.fail('write', new SinkRetriableError('the database is down'), { times: 20 });
    bench.cluster.feed('in', 0, records(0, 12));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 12);
    expect(target.values).toEqual(values(0, 12));
    expect(bench.counters.retries).toBe(20);
    expect(bench.messages('warn')).toEqual(['the sink cannot be written to: the stage waits and tries again until it can']);
    expect(bench.messages('info')).toContain('the sink can be written to again');
  });

  it('may have applied the batch whose answer was lost: the position tells, and it is not written again', async () => {
    const { bench, target } = await started();
    target.fail('write', new SinkRetriableError('the answer to COMMIT was lost'), { afterEffect: true });
    bench.cluster.feed('in', 0, records(0, 8));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.fences.get('in/0')?.position === 8n);
    expect(target.values).toEqual(values(0, 8));
    // The records behind it were read already, and are not read again.
    expect(bench.cluster.journal.filter((line) => line.startsWith('startFrom'))).toEqual(['startFrom in-0@0']);
  });

  it('costs no memory beyond the bound and no membership: the group is polled on, and the partition paused', async () => {
    const { bench, target } = await started({ runtime: { maxBufferedBytes: 200 } });
    let open: () => void = () => undefined;
    target.gate = new Promise((resolve) => (open = resolve));
    bench.cluster.feed('in', 0, records(0, 1_000));
    bench.consumer.assign([IN0]);
    const before = bench.clock.monotonic();
    await bench.until(() => bench.consumer.paused.includes('pause in-0'));
    await bench.steps(50);
    expect(bench.clock.monotonic() - before).toBeGreaterThan(100);
    expect(bench.worker.lastPollAgeMs()).toBeLessThan(bench.clock.monotonic() - before);
    expect(bench.worker.lags()).toEqual([{ topic: 'in', partition: 0, lag: 1_000 }]);
    expect(bench.consumer.paused.filter((line) => line.startsWith('resume')).length).toBe(0);
    open();
    await bench.until(() => target.applied.length === 1_000, 3_000);
    expect(target.values).toEqual(values(0, 1_000));
    expect(bench.consumer.paused).toContain('resume in-0');
  });

  it('is waited for when the stage starts', async () => {
    const target = new FakeTarget();
    target.fail('open', new SinkRetriableError('connection refused'), { times: 3 });
    target.fail('claim', new SinkRetriableError('connection refused'), { times: 3 });
    const { bench } = await started({ target });
    bench.cluster.feed('in', 0, records(0, 2));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 2);
    expect(bench.messages('warn').length).toBe(2);
  });

  it('stops the stage where no retry mends it', async () => {
    const { bench, target } = await started();
    target.fail('write', new SinkFatalError('no such table'));
    bench.cluster.feed('in', 0, records(0, 2));
    bench.consumer.assign([IN0]);
    await expect(bench.until(() => false)).rejects.toThrow('no such table');
  });
});

describe('another owner', () => {
  it('that took the partition for a moment: it is claimed again, and read from where the other one came to', async () => {
    const { bench, target } = await started();
    bench.cluster.feed('in', 0, records(0, 4));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 4);
    target.takeAway(IN0, 7n);
    bench.cluster.feed('in', 0, records(4, 10));
    await bench.until(() => target.fences.get('in/0')?.position === 10n);
    expect(target.values).toEqual([...values(0, 4), ...values(7, 10)]);
    expect(bench.counters.fenced).toBe(1);
    // The group was asked whether this is still the owner, before the claim.
    const claim = target.journal.lastIndexOf('claim in-0@4');
    expect(claim).toBeGreaterThan(0);
    expect(bench.cluster.journal.filter((line) => line.startsWith('commit in-0@4')).length).toBeGreaterThan(0);
  });

  it('whom the group has chosen is left alone: a zombie does not claim the partition back', async () => {
    const { bench, target } = await started();
    bench.cluster.feed('in', 0, records(0, 4));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 4);
    bench.consumer.expel();
    target.takeAway(IN0);
    bench.cluster.feed('in', 0, records(4, 6));
    const claims = target.journal.filter((line) => line.startsWith('claim')).length;
    await bench.until(() => bench.counters.fenced === 1);
    await bench.steps(20);
    expect(target.journal.filter((line) => line.startsWith('claim')).length).toBe(claims);
    expect(target.values).toEqual(values(0, 4));
  });

  it('who keeps on taking it, although the group says it is ours, stops the stage with a reason', async () => {
    const { bench, target } = await started();
    bench.cluster.feed('in', 0, records(0, 4));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 4);
    target.takeAway(IN0);
    const perform = target.perform.bind(target);
    target.perform = (call, note, effect) => {
      const result = perform(call, note, effect);
      if (call === 'claim') target.takeAway(IN0);
      return result;
    };
    bench.cluster.feed('in', 0, records(4, 6));
    await expect(bench.until(() => false)).rejects.toThrow(/do two applications with the same id use the same tables/);
  });
});

describe('a rebalance', () => {
  it('waits for the batch in hand, commits it, and goes on with what was read where the partition stays', async () => {
    const { bench, target } = await started({ sink: { maxBatchRecords: 3 } });
    bench.cluster.feed('in', 0, records(0, 10));
    bench.consumer.assign([IN0]);
    let open: () => void = () => undefined;
    target.gate = new Promise((resolve) => (open = resolve));
    await bench.until(() => target.mostAtOnce === 1);
    bench.consumer.revoke([IN0]);
    const step = bench.steps(1);
    for (let i = 0; i < 5; i++) await eventLoopTurn();
    open();
    await step;
    expect(bench.committed('in', 0)).toBe(3n);
    await bench.steps(5);
    expect(target.applied.length).toBe(3);

    bench.consumer.assign([IN0], [IN0]);
    await bench.until(() => target.applied.length === 10);
    expect(target.values).toEqual(values(0, 10));
    expect(bench.cluster.journal.filter((line) => line.startsWith('startFrom'))).toEqual(['startFrom in-0@0']);
  });

  it('does not wait for ever for a target that is down', async () => {
    const { bench, target } = await started({ tuning: { drainMs: 300 } });
    bench.cluster.feed('in', 0, records(0, 3));
    target.gate = new Promise(() => undefined);
    bench.consumer.assign([IN0]);
    await bench.until(() => target.mostAtOnce === 1);
    const before = bench.clock.monotonic();
    bench.consumer.revoke([IN0]);
    await bench.steps(1);
    expect(bench.clock.monotonic() - before).toBeLessThan(1_000);
    expect(bench.messages('info')).toContain('partitions of the sink stage revoked');
  });

  it('claims what it gets, and leaves alone what it gives away', async () => {
    const { bench, target } = await started();
    bench.cluster.feed('in', 0, records(0, 5));
    bench.cluster.feed('in', 1, records(0, 5));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 5);
    bench.consumer.revoke([IN0]);
    bench.consumer.assign([IN1]);
    bench.cluster.feed('in', 0, records(5, 8));
    await bench.until(() => target.applied.length === 10);
    await bench.steps(10);
    expect(target.fences.get('in/0')?.position).toBe(5n);
    expect(target.fences.get('in/1')?.position).toBe(5n);
  });

  it('that was lost drops everything without a commit, and a write in flight is not counted on', async () => {
    const { bench, target } = await started();
    let open: () => void = () => undefined;
    target.gate = new Promise((resolve) => (open = resolve));
    bench.cluster.feed('in', 0, records(0, 5));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.mostAtOnce === 1);
    bench.consumer.lose([IN0]);
    await bench.steps(2);
    open();
    await bench.steps(5);
    expect(bench.committed('in', 0)).toBeUndefined();

    // Back again: the claim comes after the end of that write, and finds it applied.
    bench.consumer.assign([IN0]);
    await bench.until(() => bench.cluster.journal.includes('startFrom in-0@5'));
    expect(target.values).toEqual(values(0, 5));
  });

  it('that a commit tells of: nothing more is written in the name of the old generation', async () => {
    const { bench, target } = await started();
    bench.cluster.feed('in', 0, records(0, 3));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 3);
    bench.cluster.fail('commit', new StaleGenerationError('the generation is over'));
    await bench.until(() => bench.cluster.journal.some((line) => line.endsWith('!')));
    bench.cluster.feed('in', 0, records(3, 6));
    await bench.steps(10);
    expect(target.applied.length).toBe(3);
    bench.consumer.revoke([IN0]);
    bench.consumer.assign([IN0], [IN0]);
    await bench.until(() => target.applied.length === 6);
    expect(target.values).toEqual(values(0, 6));
  });

  it('that nobody told of was a passing fault: everything is claimed anew after the session timeout', async () => {
    const { bench, target } = await started();
    bench.cluster.feed('in', 0, records(0, 3));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 3);
    bench.cluster.fail('commit', new StaleGenerationError('the generation is over'));
    await bench.until(() => bench.cluster.journal.some((line) => line.endsWith('!')));
    bench.cluster.feed('in', 0, records(3, 6));
    await bench.until(() => target.applied.length === 6, 2_000);
    expect(target.values).toEqual(values(0, 6));
  });
});

describe("the group's offsets", () => {
  it('follow what is applied, now and then', async () => {
    const { bench, target } = await started({ tuning: { offsetCommitIntervalMs: 1_000 } });
    bench.cluster.feed('in', 0, records(0, 50));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 50);
    await bench.until(() => bench.committed('in', 0) === 50n);
    expect(bench.cluster.journal.filter((line) => line.startsWith('commit in')).length).toBeLessThan(5);
  });

  it('come before the effect in mode at-most-once', async () => {
    const { bench, target } = await started({ sink: { mode: 'at-most-once' } });
    let committedAtWrite: bigint | undefined;
    const perform = target.perform.bind(target);
    target.perform = (call, note, effect) => {
      if (call === 'write') committedAtWrite ??= bench.committed('in', 0);
      return perform(call, note, effect);
    };
    bench.cluster.feed('in', 0, records(0, 3));
    bench.consumer.assign([IN0]);
    await bench.until(() => target.applied.length === 3);
    expect(committedAtWrite).toBe(3n);
  });

  it('that cannot be committed in mode at-most-once mean that nothing is written', async () => {
    const { bench, target } = await started({ sink: { mode: 'at-most-once' } });
    bench.cluster.feed('in', 0, records(0, 3));
    bench.consumer.assign([IN0]);
    bench.cluster.fail('commit', new RetriableError('coordinator moves'), { times: 3 });
    bench.cluster.fail('commit', new StaleGenerationError('the generation is over'));
    await bench.until(() => bench.cluster.journal.filter((line) => line.endsWith('!')).length === 4);
    await bench.steps(10);
    expect(target.applied).toEqual([]);
  });

  it('come after the effect in mode at-least-once', async () => {
    const { bench, target } = await started({ sink: { mode: 'at-least-once' } });
    bench.cluster.feed('in', 0, records(0, 3));
    bench.consumer.assign([IN0]);
    target.fail('write', new SinkRetriableError('down'), { times: 5 });
    await bench.until(() => bench.committed('in', 0) === 3n);
    expect(target.values).toEqual(values(0, 3));
  });
});

describe('fail points', () => {
  it('stand after a poll that brought records, and after offsets were committed', async () => {
    const reached: string[] = [];
    const { bench, target } = await started({ failPoints: (name) => void reached.push(`${name} ${target?.applied.length}`) });
    bench.cluster.feed('in', 0, records(0, 3));
    bench.consumer.assign([IN0]);
    await bench.until(() => bench.committed('in', 0) === 3n);
    await bench.steps(1);
    expect(reached[0]).toBe('sink-after-poll 0');
    expect(reached).toContain('sink-after-offsets 3');
  });
});

describe('stopping', () => {
  it('writes what is in hand, commits, leaves the group and closes the sink', async () => {
    const { bench, target } = await started();
    bench.cluster.feed('in', 0, records(0, 3));
    bench.consumer.assign([IN0]);
    const run = bench.worker.run();
    await expect.poll(() => target.applied.length).toBe(3);
    await bench.worker.stop(5_000);
    await run;
    expect(bench.committed('in', 0)).toBe(3n);
    expect(bench.consumer.closed).toBe(true);
    expect(target.closed).toBe(true);
  });

  it('ends also while the target is down, and rejects with the error that stopped the stage', async () => {
    const { bench, target } = await started();
    target.gate = new Promise(() => undefined);
    bench.cluster.feed('in', 0, records(0, 3));
    bench.consumer.assign([IN0]);
    const run = bench.worker.run();
    await expect.poll(() => target.mostAtOnce).toBe(1);
    await bench.worker.stop(1_000);
    await run;
    expect(bench.consumer.closed).toBe(true);

    const failing = await started();
    failing.target.fail('write', new SinkFatalError('no such table'));
    failing.bench.cluster.feed('in', 0, records(0, 3));
    failing.bench.consumer.assign([IN0]);
    await expect(failing.bench.worker.run()).rejects.toThrow('no such table');
    expect(failing.bench.consumer.closed).toBe(true);
    expect(failing.target.closed).toBe(true);
  });

  it('before the target was ever reached ends at once', async () => {
    const target = new FakeTarget();
    target.fail('open', new SinkRetriableError('down'), { times: 1_000_000 });
    const builder = new StreamsBuilder();
    builder.stream('in', { key: string(), value: string() }).sink(fakeSink(target), { name: 'store' });
    const bench = new SinkWorkerBench(builder.build());
    bench.cluster.createTopic('in', 1);
    const run = bench.worker.run();
    await bench.worker.stop(1_000);
    await run;
    expect(bench.consumer.closed).toBe(false);
  });
});
