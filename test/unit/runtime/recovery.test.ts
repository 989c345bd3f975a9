import { describe, expect, it } from 'vitest';
import {
  FatalError,
  FencedError,
  OutcomeUnknownError,
  RecordTooLargeError,
  RetriableError,
  StaleGenerationError,
} from '../../../src/model/errors.ts';
import { Backoff, FencingLimit } from '../../../src/runtime/backoff.ts';
import { type Remedy, remedyFor, type WorkStep } from '../../../src/runtime/remedy.ts';
import { string } from '../../../src/serde/string.ts';
import { StreamsBuilder } from '../../../src/topology/streams-builder.ts';
import type { Topology } from '../../../src/topology/topology.ts';
import type { FakeCall } from '../../support/fake-kafka.ts';
import { WorkerBench } from '../../support/worker-bench.ts';

const IN0 = { topic: 'in', partition: 0 };

function copy(): Topology {
  const builder = new StreamsBuilder();
  builder.stream('in', { key: string(), value: string() }).to('out');
  return builder.build();
}

async function running(options: ConstructorParameters<typeof WorkerBench>[1] = {}): Promise<WorkerBench> {
  const bench = new WorkerBench(copy(), options);
  bench.cluster.createTopic('in', 1);
  bench.cluster.createTopic('out', 1);
  await bench.load(['out']);
  bench.consumer.assign([IN0]);
  await bench.until(() => bench.states.at(-1) === 'running');
  if (options.guarantee !== 'at-most-once') await bench.until(() => bench.cluster.groupOffsets.has('in/0'));
  bench.cluster.journal.length = 0;
  return bench;
}

function feed(bench: WorkerBench, from: number, to: number): void {
  bench.cluster.feed(
    'in',
    0,
    Array.from({ length: to - from }, (_, i) => ({ key: 'k', value: `v${from + i}` })),
  );
}

function expected(count: number): string[] {
  return Array.from({ length: count }, (_, i) => `v${i}`);
}

const RETRIABLE = new RetriableError('the broker went away');
const FENCED = new FencedError('the epoch is over');
const STALE = new StaleGenerationError('the generation is over');
const UNKNOWN = new OutcomeUnknownError('no answer');
const FATAL = new FatalError('not authorised');

describe('remedyFor', () => {
  const steps: readonly WorkStep[] = [
    'poll',
    'init',
    'read-offsets',
    'load-topic',
    'process',
    'flush',
    'send-offsets',
    'end-transaction',
    'abort',
    'commit-offsets',
  ];
  const table: readonly [Error, readonly Remedy[]][] = [
    [
      RETRIABLE,
      [
        'try-again',
        'try-again',
        'try-again',
        'roll-back',
        'roll-back',
        'roll-back',
        'roll-back',
        'take-new-epoch',
        'take-new-epoch',
        'try-again',
      ],
    ],
    [
      FENCED,
      [
        'rejoin',
        'take-new-epoch',
        'rejoin',
        'take-new-epoch',
        'take-new-epoch',
        'take-new-epoch',
        'take-new-epoch',
        'take-new-epoch',
        'take-new-epoch',
        'rejoin',
      ],
    ],
    [STALE, ['rejoin', 'rejoin', 'rejoin', 'rejoin', 'rejoin', 'rejoin', 'rejoin', 'take-new-epoch', 'take-new-epoch', 'rejoin']],
    [UNKNOWN, steps.map(() => 'take-new-epoch')],
    [FATAL, steps.map(() => 'stop')],
    [new RecordTooLargeError('too large'), steps.map(() => 'stop')],
    [new TypeError('a fault of the engine'), steps.map(() => 'stop')],
  ];
  it.each(table)('%s', (error, remedies) => {
    expect(steps.map((step) => remedyFor(error, step))).toEqual(remedies);
  });
});

describe('exactly-once: an error at each step of a transaction loses and doubles nothing', () => {
  const calls: readonly FakeCall[] = ['append', 'ready', 'flush', 'sendOffsets', 'endTxn'];
  const errors: readonly [string, Error][] = [
    ['RetriableError', RETRIABLE],
    ['FencedError', FENCED],
    ['StaleGenerationError', STALE],
    ['OutcomeUnknownError', UNKNOWN],
  ];
  const cases = calls.flatMap((call) =>
    errors.flatMap(([name, error]) => [false, true].map((afterEffect) => [call, name, afterEffect, error] as const)),
  );
  it.each(cases)('%s throws %s, effect taken: %s', async (call, _name, afterEffect, error) => {
    const bench = await running({ maxSliceRecords: 4, sessionTimeoutMs: 6_000, heartbeatIntervalMs: 500 });
    feed(bench, 0, 10);
    bench.cluster.fail(call, error, { afterEffect });
    await bench.until(() => bench.cluster.groupOffsets.get('in/0')?.offset === 10n, 1_000);
    expect(bench.cluster.values('out')).toEqual(expected(10));
    feed(bench, 10, 20);
    await bench.until(() => bench.cluster.groupOffsets.get('in/0')?.offset === 20n, 1_000);
    expect(bench.cluster.values('out')).toEqual(expected(20));
  });

  it.each(calls)('%s throws what no retry mends: the worker stops with it', async (call) => {
    const bench = await running();
    feed(bench, 0, 3);
    bench.cluster.fail(call, FATAL);
    await expect(bench.steps(20)).rejects.toBe(FATAL);
    expect(bench.cluster.outputs).toEqual([]);
  });

  it('an unknown outcome: a new epoch is taken, the committed offset read, and a commit that took effect not repeated', async () => {
    const bench = await running();
    feed(bench, 0, 3);
    bench.cluster.fail('endTxn', UNKNOWN, { afterEffect: true });
    await bench.until(() => bench.cluster.journal.includes('committed'));
    expect(bench.cluster.journal).toEqual(['flush', 'sendOffsets in-0@3', 'endTxn !', 'init', 'committed']);
    await bench.steps(30);
    expect(bench.cluster.values('out')).toEqual(expected(3));
  });

  it('an unknown outcome of a commit that took no effect: goes back', async () => {
    const bench = await running();
    feed(bench, 0, 3);
    bench.cluster.fail('endTxn', UNKNOWN);
    await bench.until(() => bench.cluster.outputs.length > 0);
    expect(bench.cluster.journal.slice(0, 6)).toEqual(['flush', 'sendOffsets in-0@3', 'endTxn !', 'init', 'committed', 'startFrom in-0@0']);
    expect(bench.cluster.values('out')).toEqual(expected(3));
  });

  it('an abort that fails is ended by a new epoch, and the committed offset is read', async () => {
    const bench = await running();
    feed(bench, 0, 3);
    bench.cluster.fail('flush', RETRIABLE);
    bench.cluster.fail('abort', RETRIABLE);
    await bench.until(() => bench.cluster.outputs.length > 0);
    expect(bench.cluster.journal.slice(0, 5)).toEqual(['flush !', 'abort !', 'init', 'committed', 'startFrom in-0@0']);
    expect(bench.cluster.values('out')).toEqual(expected(3));
  });

  it('waits for offsets that are unstable, and does not start before', async () => {
    const bench = new WorkerBench(copy());
    bench.cluster.createTopic('in', 1);
    bench.cluster.createTopic('out', 1);
    await bench.load(['out']);
    feed(bench, 0, 3);
    bench.cluster.fail('committed', RETRIABLE, { times: 4 });
    bench.consumer.assign([IN0]);
    await bench.until(() => bench.cluster.outputs.length === 3);
    const starts = bench.cluster.journal.indexOf('startFrom in-0@0');
    expect(bench.cluster.journal.slice(0, starts)).toEqual(['init', ...Array.from({ length: 4 }, () => 'committed !'), 'committed']);
  });

  it('the group is polled on while the producer cannot be initialised', async () => {
    const bench = new WorkerBench(copy());
    bench.cluster.createTopic('in', 1);
    bench.cluster.fail('init', RETRIABLE, { times: 5 });
    bench.consumer.assign([IN0]);
    bench.consumer.revoke([IN0]);
    await bench.until(() => bench.lines.some(({ message }) => message === 'partitions revoked'), 4);
    expect(bench.cluster.journal.filter((call) => call === 'init')).toEqual([]);
  });

  it('after a revocation whose commit had an unknown outcome, the epoch is taken before the next assignment', async () => {
    const bench = await running({ commitIntervalMs: 5_000 });
    feed(bench, 0, 3);
    await bench.steps(2);
    bench.cluster.journal.length = 0;
    bench.cluster.fail('endTxn', UNKNOWN);
    bench.consumer.revoke([IN0]);
    await bench.steps(4);
    // The next owner waits for this transaction to be settled.
    expect(bench.cluster.journal).toEqual(['flush', 'sendOffsets in-0@3', 'endTxn !', 'init']);
    bench.consumer.assign([IN0], [IN0]);
    await bench.until(() => bench.cluster.outputs.length === 3);
  });

  it('closing settles a commit whose outcome is unknown', async () => {
    const bench = await running({ commitIntervalMs: 5_000 });
    feed(bench, 0, 3);
    await bench.steps(2);
    bench.cluster.journal.length = 0;
    bench.cluster.fail('endTxn', UNKNOWN, { afterEffect: true });
    bench.worker.requestStop();
    await bench.worker.run();
    expect(bench.cluster.journal).toEqual(['flush', 'sendOffsets in-0@3', 'endTxn !', 'init']);
  });

  it('an error that stops the application leaves no open transaction behind', async () => {
    const bench = await running({ commitIntervalMs: 5_000 });
    feed(bench, 0, 3);
    await bench.steps(2);
    bench.cluster.journal.length = 0;
    bench.cluster.fail('poll', FATAL);
    await expect(bench.worker.run()).rejects.toBe(FATAL);
    expect(bench.cluster.journal).toEqual(['abort']);
  });

  it('is fenced again and again: stops, and names the instance id', async () => {
    const bench = await running();
    feed(bench, 0, 3);
    bench.cluster.fail('flush', FENCED, { times: 50 });
    await expect(bench.steps(200)).rejects.toThrow(/instance id 'instance-1'.*transactionTimeoutMs/s);
  });

  it('gives up when a failure lasts too long, and says for how long it tried', async () => {
    const bench = await running({ retryTimeoutMs: 10_000 });
    feed(bench, 0, 3);
    bench.cluster.fail('flush', RETRIABLE, { times: 1_000 });
    await expect(bench.steps(1_000)).rejects.toThrow(/gave up after 1\d s.*step 'flush'.*the broker went away.*retryTimeoutMs/s);
  });

  it('polls that fail are retried, and given up after the deadline', async () => {
    const bench = await running({ retryTimeoutMs: 10_000 });
    bench.cluster.fail('poll', RETRIABLE, { times: 3 });
    feed(bench, 0, 3);
    await bench.until(() => bench.cluster.outputs.length === 3);
    bench.cluster.fail('poll', RETRIABLE, { times: 1_000 });
    await expect(bench.steps(1_000)).rejects.toThrow(/gave up.*step 'poll'/s);
  });

  it('an error between poll and handling loses no event', async () => {
    let polls = 0;
    const bench = await running({
      failPoints: (name) => {
        if (name === 'after-poll' && ++polls % 2 === 0) throw RETRIABLE;
      },
    });
    feed(bench, 0, 30);
    await bench.until(() => bench.cluster.outputs.length === 30);
    expect(bench.cluster.values('out')).toEqual(expected(30));
  });
});

describe('at-least-once', () => {
  it('flushes, then commits the offsets', async () => {
    const bench = await running({ guarantee: 'at-least-once', commitIntervalMs: 100 });
    feed(bench, 0, 3);
    await bench.until(() => bench.cluster.groupOffsets.get('in/0')?.offset === 3n);
    expect(bench.cluster.journal).toEqual(['flush', 'commit in-0@3']);
  });

  it('a failed flush: a new producer id, back to the committed offset, and nothing is lost', async () => {
    const bench = await running({ guarantee: 'at-least-once', commitIntervalMs: 100 });
    feed(bench, 0, 3);
    bench.cluster.fail('flush', RETRIABLE);
    await bench.until(() => bench.cluster.groupOffsets.get('in/0')?.offset === 3n);
    expect(bench.cluster.journal).toEqual(['flush !', 'init', 'startFrom in-0@0', 'flush', 'commit in-0@3']);
    expect(bench.cluster.values('out')).toEqual(expected(3));
  });

  it('a failed commit of offsets is repeated soon, without doing the work again', async () => {
    const bench = await running({ guarantee: 'at-least-once', commitIntervalMs: 20_000 });
    feed(bench, 0, 3);
    bench.cluster.fail('commit', RETRIABLE, { times: 2 });
    const began = bench.clock.now();
    await bench.until(() => bench.cluster.groupOffsets.get('in/0')?.offset === 3n, 2_000);
    expect(bench.clock.now() - began).toBeLessThan(25_000);
    expect(bench.cluster.values('out')).toEqual(expected(3));
  });

  it('what was flushed but not committed is done again by the next owner', async () => {
    const bench = await running({ guarantee: 'at-least-once', commitIntervalMs: 100, sessionTimeoutMs: 6_000, heartbeatIntervalMs: 500 });
    feed(bench, 0, 3);
    bench.cluster.fail('commit', STALE);
    await bench.until(() => bench.cluster.groupOffsets.get('in/0')?.offset === 3n);
    expect(bench.cluster.values('out')).toEqual([...expected(3), ...expected(3)]);
  });
});

describe('at-most-once', () => {
  it('commits the offset before it processes the records', async () => {
    const processed: bigint[] = [];
    const bench = await running({
      guarantee: 'at-most-once',
      commitIntervalMs: 100,
      failPoints: (name) => {
        if (name === 'mid-processing') processed.push(bench.cluster.groupOffsets.get('in/0')?.offset ?? -1n);
      },
    });
    feed(bench, 0, 10);
    await bench.until(() => bench.cluster.outputs.length === 10);
    expect(processed[0]).toBe(10n);
  });

  it('a failed flush loses what was in flight, counts it, and repeats nothing', async () => {
    const bench = await running({ guarantee: 'at-most-once', commitIntervalMs: 100 });
    feed(bench, 0, 10);
    bench.cluster.fail('flush', RETRIABLE);
    await bench.until(() => bench.metrics.lost > 0);
    expect(bench.metrics.lost).toBe(10);
    feed(bench, 10, 12);
    await bench.until(() => bench.cluster.outputs.length === 2);
    expect(bench.cluster.values('out')).toEqual(['v10', 'v11']);
  });

  it('processes nothing whose offset could not be committed, and tries again', async () => {
    const bench = await running({ guarantee: 'at-most-once', commitIntervalMs: 100 });
    feed(bench, 0, 5);
    bench.cluster.fail('commit', RETRIABLE, { times: 2 });
    await bench.until(() => bench.cluster.outputs.length === 5);
    expect(bench.cluster.values('out')).toEqual(expected(5));
  });

  it('processes what is committed before it gives partitions away', async () => {
    const bench = await running({ guarantee: 'at-most-once', commitIntervalMs: 5_000, maxSliceRecords: 2 });
    feed(bench, 0, 10);
    await bench.steps(1);
    bench.consumer.revoke([IN0]);
    await bench.steps(1);
    expect(bench.cluster.values('out')).toEqual(expected(Number(bench.cluster.groupOffsets.get('in/0')?.offset ?? 0n)));
    expect(bench.cluster.outputs.length).toBe(10);
  });
});

describe('Backoff', () => {
  it('doubles up to a bound, with jitter from the given source', () => {
    const backoff = new Backoff(300_000, () => 1);
    const delays = Array.from({ length: 10 }, (_, i) => backoff.failed(RETRIABLE, 'poll', i));
    expect(delays.slice(0, 4)).toEqual([10, 20, 40, 80]);
    expect(Math.max(...delays)).toBe(1_000);
    expect(new Backoff(1_000, () => 0).failed(RETRIABLE, 'poll', 0)).toBe(5);
  });

  it('a failure after a long quiet time begins a new series', () => {
    const backoff = new Backoff(10_000, () => 0);
    backoff.failed(RETRIABLE, 'poll', 0);
    expect(() => backoff.failed(RETRIABLE, 'poll', 11_000)).toThrow(FatalError);
    expect(() => backoff.failed(RETRIABLE, 'poll', 500_000)).not.toThrow();
  });
});

describe('FencingLimit', () => {
  it('allows a few in a minute', () => {
    const limit = new FencingLimit('i', 10_000);
    expect(() => {
      for (let i = 0; i < 20; i++) {
        limit.fenced(FENCED, i * 20_000);
        limit.committed();
      }
    }).not.toThrow();
  });

  it('does not allow two processes to take turns, though each commits in between', () => {
    const limit = new FencingLimit('i', 10_000);
    expect(() => {
      for (let i = 0; i < 20; i++) {
        limit.fenced(FENCED, i * 1_000);
        limit.committed();
      }
    }).toThrow(FatalError);
  });
});
