import { describe, expect, it } from 'vitest';
import { NO_HEADERS, textHeader } from '../../../src/model/headers.ts';
import { idempotencyKeyHeader } from '../../../src/model/idempotency-key.ts';
import { partitionForKey } from '../../../src/model/partitioner.ts';
import { RecordCollector } from '../../../src/runtime/collector.ts';
import { OutputError } from '../../../src/runtime/record-failure.ts';
import { string } from '../../../src/serde/string.ts';
import { StreamsBuilder } from '../../../src/topology/streams-builder.ts';
import { FakeCluster, FakeIdempotentProducer } from '../../support/fake-kafka.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { WorkerBench } from '../../support/worker-bench.ts';

async function collector({ random = 0 } = {}) {
  const cluster = new FakeCluster(new ManualClock());
  cluster.createTopic('out', 4);
  const producer = new FakeIdempotentProducer(cluster);
  await producer.init();
  await producer.loadTopics(['out']);
  const counters = { records: 0 };
  const collector = new RecordCollector(
    producer,
    () => random,
    () => counters,
  );
  const deliver = async (): Promise<void> => {
    expect(collector.resolve()).toBeUndefined();
    collector.append();
    await producer.flush();
  };
  return { cluster, producer, collector, counters, deliver };
}

describe('the idempotency key of several outputs of one record', () => {
  it('is numbered where it would come twice into one topic, so that a consumer does not take the second for a duplicate', async () => {
    const cluster = new FakeCluster(new ManualClock());
    cluster.createTopic('in', 1);
    cluster.createTopic('a', 1);
    cluster.createTopic('b', 1);
    const producer = new FakeIdempotentProducer(cluster);
    await producer.init();
    await producer.loadTopics(['a', 'b']);
    const c = new RecordCollector(
      producer,
      () => 0,
      () => ({ records: 0 }),
    );
    const headers = [textHeader('trace', 't'), textHeader('Idempotency-Key', 'order-1')];
    for (let repetition = 0; repetition < 2; repetition++) {
      for (const topic of ['a', 'b', 'a', 'a']) c.send(topic, 0, 'k', topic, 0, headers);
      c.send('a', 0, 'k', 'none', 0, NO_HEADERS);
      c.send('a', 0, 'k', 'other', 0, [textHeader('idempotency-key', 'order-2')]);
      expect(c.resolve()).toBeUndefined();
      c.append();
    }
    await producer.flush();
    const keys = (topic: string) =>
      cluster.outputs.filter((output) => output.topic === topic).map((output) => idempotencyKeyHeader(output.headers));
    const once = ['order-1', 'order-1~1', 'order-1~2', undefined, 'order-2'];
    expect(keys('a')).toEqual([...once, ...once]);
    expect(keys('b')).toEqual(['order-1', 'order-1']);
    expect(cluster.outputs.filter(({ headers: own }) => own.some(({ key }) => key === 'trace'))).toHaveLength(8);
  });
});

describe('the partition of an output', () => {
  it('is that of the Java client for a key', async () => {
    const { cluster, collector: c, deliver } = await collector();
    for (const key of ['a', 'b', 'c']) c.send('out', undefined, key, 'v', 0, NO_HEADERS);
    c.send('out', undefined, Buffer.from('a'), 'v', 0, NO_HEADERS);
    await deliver();
    expect(cluster.outputs.map(({ partition }) => partition)).toEqual(['a', 'b', 'c', 'a'].map((key) => partitionForKey(key, 4)));
  });

  it('goes round without a key, beginning where chance says', async () => {
    const { cluster, collector: c, deliver } = await collector({ random: 0.5 });
    for (let i = 0; i < 5; i++) c.send('out', undefined, null, `${i}`, 0, NO_HEADERS);
    await deliver();
    expect(cluster.outputs.map(({ partition }) => partition)).toEqual([2, 3, 0, 1, 2]);
  });

  it('is what the step says, a number or a function of the count', async () => {
    const { cluster, collector: c, deliver } = await collector();
    c.send('out', 3, 'k', 'v', 0, NO_HEADERS);
    c.send('out', (count) => count - 2, 'k', 'v', 0, NO_HEADERS);
    c.send('out', () => undefined, 'k', 'v', 0, NO_HEADERS);
    await deliver();
    expect(cluster.outputs.map(({ partition }) => partition)).toEqual([3, 2, partitionForKey('k', 4)]);
  });

  it.each([4, -1, 1.5])('is refused when it is %s', async (partition) => {
    const { collector: c } = await collector();
    c.send('out', partition, 'k', 'v', 0, NO_HEADERS);
    expect(() => c.resolve()).toThrow(OutputError);
  });
});

describe('the outputs of one record', () => {
  it('are dropped as a whole', async () => {
    const { cluster, collector: c, deliver, counters } = await collector();
    c.send('out', 0, null, 'dropped', 0, NO_HEADERS);
    c.send('out', 0, null, 'dropped too', 0, NO_HEADERS);
    c.drop();
    c.send('out', 0, null, 'kept', 0, NO_HEADERS);
    await deliver();
    expect(cluster.values('out')).toEqual(['kept']);
    expect(counters.records).toBe(1);
  });

  it('are not written at all when one of them is too large', async () => {
    const { cluster, producer, collector: c, deliver } = await collector();
    producer.maxBytes = 100;
    c.send('out', 0, null, 'small', 0, NO_HEADERS);
    c.send('out', 0, null, 'x'.repeat(101), 0, NO_HEADERS);
    expect(() => c.resolve()).toThrow(/101 bytes.*'out'.*100/);
    c.drop();
    // Its upper bound is above the limit, its size is not.
    c.send('out', 0, null, 'x'.repeat(100), 0, NO_HEADERS);
    await deliver();
    expect(cluster.values('out')).toEqual(['x'.repeat(100)]);
  });

  it('wait while their topic is not loaded', async () => {
    const { cluster, producer, collector: c, deliver } = await collector();
    cluster.createTopic('later', 1);
    c.send('out', 0, null, 'a', 0, NO_HEADERS);
    c.send('later', undefined, 'k', 'b', 0, NO_HEADERS);
    expect(c.resolve()).toBe('later');
    await producer.loadTopics(['later']);
    await deliver();
    expect(cluster.outputs.map(({ topic, value }) => [topic, value])).toEqual([
      ['out', 'a'],
      ['later', 'b'],
    ]);
  });
});

describe('computed topics', () => {
  const routed = (onProcessingError: 'fail' | 'skip' = 'fail') => {
    const builder = new StreamsBuilder();
    builder.stream('in', { key: string(), value: string() }).to((value) => `route-${value}`, { name: 'route' });
    return new WorkerBench(builder.build(), { onProcessingError });
  };
  const feed = (bench: WorkerBench, values: readonly string[]): void => {
    bench.cluster.createTopic('in', 1);
    bench.cluster.feed(
      'in',
      0,
      values.map((value) => ({ key: 'k', value })),
    );
    bench.consumer.assign([{ topic: 'in', partition: 0 }]);
  };

  it('are loaded when they come up, and order is kept', async () => {
    const bench = routed();
    bench.cluster.createTopic('route-a', 1);
    bench.cluster.createTopic('route-b', 1);
    feed(bench, ['a', 'b', 'a', 'b', 'a']);
    await bench.until(() => bench.cluster.outputs.length === 5);
    expect(bench.cluster.outputs.map(({ topic }) => topic)).toEqual(['route-a', 'route-b', 'route-a', 'route-b', 'route-a']);
    expect(bench.cluster.journal.filter((call) => call.startsWith('loadTopics'))).toEqual(['loadTopics route-a', 'loadTopics route-b']);
  });

  it('that do not exist are an error of the record', async () => {
    const bench = routed('skip');
    bench.cluster.createTopic('route-a', 1);
    feed(bench, ['a', 'nowhere', 'a']);
    await bench.until(() => bench.cluster.groupOffsets.get('in/0')?.offset === 3n);
    expect(bench.cluster.values('route-a')).toEqual(['a', 'a']);
    const failing = routed('fail');
    feed(failing, ['nowhere']);
    await expect(failing.steps(10)).rejects.toThrow(/in-0@0 .*\(output\).*route-nowhere/s);
  });

  it('that cannot be looked up now are tried again, with nothing lost', async () => {
    const { RetriableError } = await import('../../../src/model/errors.ts');
    const bench = routed();
    bench.cluster.createTopic('route-a', 1);
    bench.cluster.fail('loadTopics', new RetriableError('gone'), { times: 3 });
    feed(bench, ['a', 'a']);
    await bench.until(() => bench.cluster.outputs.length === 2);
    expect(bench.cluster.values('route-a')).toEqual(['a', 'a']);
  });
});
