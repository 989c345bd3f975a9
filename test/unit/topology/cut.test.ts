import { describe, expect, it } from 'vitest';
import { json, number, StreamsBuilder, string, type Topology } from '../../../src/index.ts';
import { noSink } from './no-sink.ts';
import { PlainTask } from './task.ts';

const text = { key: string(), value: string() };

/** For each part the names of its nodes, or of the topics of its sources. */
function shape({ subTopologies, sinkStages }: Topology) {
  return {
    subTopologies: subTopologies.map(({ sources, processors, sinks }) => [...sources, ...processors, ...sinks].map(({ name }) => name)),
    sinkStages: sinkStages.map(({ sources, processors, sink }) => [...sources, ...processors, sink].map(({ name }) => name)),
  };
}

describe('sub-topologies', () => {
  it('are what is connected, numbered in the order of their sources', () => {
    const builder = new StreamsBuilder();
    const a = builder.stream('a', { ...text, name: 'a' });
    const b = builder.stream('b', { ...text, name: 'b' });
    const c = builder.stream('c', { ...text, name: 'c' });
    b.to('x', { name: 'b-out' });
    a.merge(c, { name: 'both' }).to('y', { ...text, name: 'ac-out' });
    const topology = builder.build();
    expect(shape(topology).subTopologies).toEqual([
      ['a', 'c', 'both', 'ac-out'],
      ['b', 'b-out'],
    ]);
    expect(topology.subTopologies.map(({ id }) => id)).toEqual([0, 1]);
  });

  it('connect through a source that is read twice', () => {
    const builder = new StreamsBuilder();
    builder.stream('a', text).to('x', { name: 'x' });
    builder.stream('b', text).to('y', { name: 'y' });
    builder
      .stream('a', text)
      .merge(builder.stream('b', text))
      .to('z', { ...text, name: 'z' });
    expect(shape(builder.build()).subTopologies).toHaveLength(1);
  });

  it('do not connect through a topic that one writes and another reads', () => {
    const builder = new StreamsBuilder();
    builder.stream('a', text).to('b');
    builder.stream('b', text).to('c');
    expect(shape(builder.build()).subTopologies).toHaveLength(2);
  });
});

describe('sink stages', () => {
  it('take the steps before them out of the sub-topologies', () => {
    const builder = new StreamsBuilder();
    builder
      .stream('a', { ...text, name: 'a' })
      .filter(() => true, { name: 'keep' })
      .sink(noSink(), { name: 'table' });
    builder.stream('b', { ...text, name: 'b' }).to('c', { name: 'c-out' });
    expect(shape(builder.build())).toEqual({ subTopologies: [['b', 'c-out']], sinkStages: [['a', 'keep', 'table']] });
  });

  it('share steps with a sub-topology that needs them too', () => {
    const builder = new StreamsBuilder();
    const kept = builder.stream('a', { ...text, name: 'a' }).filter(() => true, { name: 'keep' });
    kept.mapValues((value) => value.length, { name: 'length' }).sink(noSink(), { name: 'table' });
    kept.to('b', { name: 'b-out' });
    expect(shape(builder.build())).toEqual({
      subTopologies: [['a', 'keep', 'b-out']],
      sinkStages: [['a', 'keep', 'length', 'table']],
    });
  });

  it('are one each, although they read the same', () => {
    const builder = new StreamsBuilder();
    const a = builder.stream('a', { ...text, name: 'a' });
    a.sink(noSink(), { name: 'first' });
    a.sink(noSink(), { name: 'second' });
    expect(shape(builder.build())).toEqual({
      subTopologies: [],
      sinkStages: [
        ['a', 'first'],
        ['a', 'second'],
      ],
    });
  });

  it('have all sources that lead to them', () => {
    const builder = new StreamsBuilder();
    builder
      .stream('a', { ...text, name: 'a' })
      .merge(builder.stream('b', { ...text, name: 'b' }), { name: 'both' })
      .sink(noSink(), { name: 'table' });
    expect(shape(builder.build()).sinkStages).toEqual([['a', 'b', 'both', 'table']]);
  });

  it('do not draw a source into a sub-topology for a branch that nobody uses', () => {
    const builder = new StreamsBuilder();
    const { late } = builder
      .stream('a', { ...text, name: 'a' })
      .split({ name: 'split' })
      .branch('late', () => true)
      .defaultBranch('rest');
    late.sink(noSink(), { name: 'table' });
    expect(shape(builder.build())).toEqual({ subTopologies: [], sinkStages: [['a', 'split', 'split-late', 'table']] });
  });

  it('leave a side effect where it was, as it may be wanted by itself', () => {
    const builder = new StreamsBuilder();
    const a = builder.stream('a', { ...text, name: 'a' });
    a.peek(() => undefined, { name: 'look' });
    a.sink(noSink(), { name: 'table' });
    expect(shape(builder.build())).toEqual({ subTopologies: [['a', 'look']], sinkStages: [['a', 'table']] });
  });
});

describe('the parts of a topology', () => {
  it('do what was written', () => {
    const builder = new StreamsBuilder();
    const orders = builder.stream('orders', { key: string(), value: json<{ amount: number; items: string[] }>() });
    const { large, small } = orders
      .split()
      .branch('large', (order) => order.amount > 100)
      .defaultBranch('small');
    large.to('large-orders');
    large
      .merge(small)
      .mapValues((order) => order.amount)
      .to((amount) => (amount > 100 ? 'high' : 'low'), { key: string(), value: json() });
    small
      .flatMapValues((order) => order.items)
      .selectKey((item) => item)
      .sink(noSink());
    const topology = builder.build();

    const task = new PlainTask(topology, topology.subTopologies[0]);
    const stage = new PlainTask(topology, topology.sinkStages[0]);
    for (const part of [task, stage]) {
      part.feed('orders', 'o1', '{"amount":200,"items":["x"]}');
      part.feed('orders', 'o2', '{"amount":5,"items":["y","z"]}');
    }

    expect(task.sent).toEqual([
      ['large-orders', 'o1', '{"amount":200,"items":["x"]}'],
      ['high', 'o1', '200'],
      ['low', 'o2', '5'],
    ]);
    expect(task.emitted).toEqual([]);
    expect(stage.sent).toEqual([]);
    expect(stage.emitted).toEqual([
      ['y', 'y'],
      ['z', 'z'],
    ]);
  });

  it('pass bytes through unchanged where no serde is given', () => {
    const builder = new StreamsBuilder();
    builder.stream('in').to('out');
    const topology = builder.build();
    const task = new PlainTask(topology, topology.subTopologies[0]);
    task.feed('in', null, null);
    task.feed('in', 'k', 'v');
    expect(task.sent).toEqual([
      ['out', null, null],
      ['out', 'k', 'v'],
    ]);
  });

  it('write what changed with the serde that was given', () => {
    const builder = new StreamsBuilder();
    builder.stream('in', text).mapValues(Number).to('out', { value: number() });
    const topology = builder.build();
    const task = new PlainTask(topology, topology.subTopologies[0]);
    task.feed('in', 'k', '1.5');
    expect(task.collector.sent[0]?.value).toEqual(Buffer.from('3ff8000000000000', 'hex'));
  });

  it('may be built more than once', () => {
    const builder = new StreamsBuilder();
    builder.stream('in').to('out');
    const topology = builder.build();
    const tasks = [1, 2].map(() => new PlainTask(topology, topology.subTopologies[0]));
    tasks[0]?.feed('in', 'k', 'v');
    expect(tasks.map(({ sent }) => sent.length)).toEqual([1, 0]);
  });
});
