import { describe, expect, it } from 'vitest';
import { json, nullable, type Serde, StreamsBuilder, string, TopologyError } from '../../../src/index.ts';
import { noSink } from './no-sink.ts';

const always = () => true;

/** A step that ends a stream. */
function used<T extends { foreach(action: () => void): void }>(stream: T): T {
  stream.foreach(() => undefined);
  return stream;
}

describe('names', () => {
  it('are generated as in Kafka Streams', () => {
    const builder = new StreamsBuilder();
    const stream = builder.stream('in', { key: string(), value: json<number>() });
    stream
      .filter(always)
      .filterNot(always)
      .map((value, key) => [key, value])
      .mapValues((value) => value)
      .flatMap((value, key) => [[key, value]])
      .flatMapValues((value) => [value])
      .selectKey((value) => String(value))
      .peek(() => undefined)
      .merge(stream)
      .to('out', { key: string(), value: json() });
    const { a, rest } = stream.split().branch('a', always).defaultBranch('rest');
    a.foreach(() => undefined);
    rest.sink(noSink());

    expect([...builder.build().graph.nodes.keys()]).toEqual([
      'KSTREAM-SOURCE-0000000000',
      'KSTREAM-FILTER-0000000001',
      'KSTREAM-FILTER-0000000002',
      'KSTREAM-MAP-0000000003',
      'KSTREAM-MAPVALUES-0000000004',
      'KSTREAM-FLATMAP-0000000005',
      'KSTREAM-FLATMAPVALUES-0000000006',
      'KSTREAM-KEY-SELECT-0000000007',
      'KSTREAM-PEEK-0000000008',
      'KSTREAM-MERGE-0000000009',
      'KSTREAM-SINK-0000000010',
      'KSTREAM-BRANCH-0000000011',
      'KSTREAM-BRANCH-0000000011-a',
      'KSTREAM-BRANCH-0000000011-rest',
      'KSTREAM-FOREACH-0000000014',
      'postgres-in',
    ]);
  });

  it('that are given are kept, and do not rename the steps after them', () => {
    const builder = new StreamsBuilder();
    const { late } = builder
      .stream('in', { name: 'input' })
      .filter(always, { name: 'keep' })
      .filter(always)
      .split({ name: 'by-delay' })
      .branch('late', always)
      .noDefaultBranch();
    late.to('out', { name: 'output' });
    expect([...builder.build().graph.nodes.keys()]).toEqual([
      'input',
      'keep',
      'KSTREAM-FILTER-0000000002',
      'by-delay',
      'by-delay-late',
      'output',
    ]);
  });

  it('are refused when they come twice', () => {
    const stream = new StreamsBuilder().stream('in');
    stream.filter(always, { name: 'keep' });
    expect(() => stream.peek(always, { name: 'keep' })).toThrow(/two steps have the name 'keep'/);
    expect(() => stream.split().branch('a', always).branch('a', always)).toThrow(/two steps have the name 'KSTREAM-BRANCH-0000000003-a'/);
  });

  it.each(['', 'a b', 'a/b', '..', 'x'.repeat(250)])('are refused when Kafka could not have them in a topic: %j', (name) => {
    expect(() => new StreamsBuilder().stream('in').filter(always, { name })).toThrow(TopologyError);
  });
});

describe('a topic name that Kafka does not allow', () => {
  it.each(['', '.', '..', 'a b', 'ä', 'a/b', 'x'.repeat(250)])('is refused: %j', (topic) => {
    expect(() => new StreamsBuilder().stream(topic)).toThrow(/^stream 'KSTREAM-SOURCE-0000000000': the topic name ".*" /);
    expect(() => new StreamsBuilder().stream(['ok', topic])).toThrow(TopologyError);
    expect(() => new StreamsBuilder().stream('in').to(topic)).toThrow(/^step 'KSTREAM-SINK-0000000001': the topic name ".*" /);
  });

  it.each([[[]], [undefined], [null], [7], [[7]]])('is refused: %j', (topics) => {
    expect(() => new StreamsBuilder().stream(topics as unknown as string)).toThrow(TopologyError);
  });
});

describe('the same topics read twice', () => {
  it('are one source, whatever their order', () => {
    const builder = new StreamsBuilder();
    builder.stream(['a', 'b'], { value: string() }).to('x');
    builder.stream(['b', 'a', 'b'], { value: string() }).to('y');
    const { subTopologies } = builder.build();
    expect(subTopologies).toHaveLength(1);
    expect(subTopologies[0]?.sources.map(({ name, topics }) => [name, topics])).toEqual([['KSTREAM-SOURCE-0000000000', ['a', 'b']]]);
    expect(subTopologies[0]?.sinks.map(({ parents }) => parents)).toEqual([['KSTREAM-SOURCE-0000000000'], ['KSTREAM-SOURCE-0000000000']]);
  });

  it('are one source for equal patterns too', () => {
    const builder = new StreamsBuilder();
    used(builder.stream(/^a/));
    used(builder.stream(/^a/));
    expect(builder.build().subTopologies[0]?.sources).toHaveLength(1);
  });

  it('are refused with different serdes', () => {
    const builder = new StreamsBuilder();
    const parsed = () => json({ validate: Number });
    used(builder.stream('a', { value: parsed() }));
    expect(() => builder.stream('a', { value: parsed() })).toThrow(/a is read twice with different serdes/);
    expect(() => builder.stream('a', { key: string() })).toThrow(/different serdes/);
  });

  it('are taken to agree where the serdes have no settings', () => {
    const builder = new StreamsBuilder();
    const read = () => used(builder.stream('a', { key: nullable(string()), value: json<number>() }));
    read();
    expect(read).not.toThrow();
  });

  it('are refused with two names', () => {
    const builder = new StreamsBuilder();
    builder.stream('a', { name: 'first' });
    expect(() => builder.stream('a', { name: 'second' })).toThrow(/as 'first' and as 'second'/);
  });
});

describe('topic selections that overlap without being equal', () => {
  it.each([
    ['a', ['a', 'b']],
    [['a', 'b'], 'b'],
    ['flights', /^fl/],
    [/^fl/, 'flights'],
    [/^fl/, ['x', 'flights']],
  ])('are refused: %s and %s', (first, second) => {
    const builder = new StreamsBuilder();
    builder.stream(first);
    expect(() => builder.stream(second)).toThrow(
      /^the streams 'KSTREAM-SOURCE-0000000000' and 'KSTREAM-SOURCE-0000000001' overlap in topic '(a|b|flights)'/,
    );
  });

  it('are not seen in selections that do not', () => {
    const builder = new StreamsBuilder();
    used(builder.stream('flights'));
    used(builder.stream(/^trains/));
    expect(() => used(builder.stream(['trips']))).not.toThrow();
  });
});

describe('a pattern', () => {
  it('gives the same answer each time, although g and y would make it depend on the call before', () => {
    const builder = new StreamsBuilder();
    used(builder.stream(/flights/gy));
    const [source] = builder.build().subTopologies[0]?.sources ?? [];
    expect([1, 2, 3].map(() => source?.pattern?.test('flights'))).toEqual([true, true, true]);
  });
});

describe('a topology that does nothing', () => {
  it('is refused', () => {
    expect(() => new StreamsBuilder().build()).toThrow(/the topology is empty/);
  });

  it('is refused where a stream is read and not used', () => {
    const builder = new StreamsBuilder();
    used(builder.stream('a'));
    builder.stream('b');
    expect(() => builder.build()).toThrow(/the stream 'KSTREAM-SOURCE-0000000002' of b is read, but no step uses it/);
  });

  it('is refused where no branch of a split is used', () => {
    const builder = new StreamsBuilder();
    builder.stream('a').split().branch('x', always).noDefaultBranch();
    expect(() => builder.build()).toThrow(/the topology does nothing/);
  });

  it('may be completed afterwards', () => {
    const builder = new StreamsBuilder();
    const stream = builder.stream('a');
    expect(() => builder.build()).toThrow(TopologyError);
    used(stream);
    expect(builder.build().subTopologies).toHaveLength(1);
  });
});

describe('a split', () => {
  it('must be ended', () => {
    const builder = new StreamsBuilder();
    builder.stream('a').split().branch('x', always);
    expect(() => builder.build()).toThrow(/the split 'KSTREAM-BRANCH-0000000001' is not ended: call defaultBranch/);
  });

  it('needs branches, each with a predicate', () => {
    const split = () => new StreamsBuilder().stream('a').split();
    expect(() => split().noDefaultBranch()).toThrow(/has no branch/);
    // @ts-expect-error no predicate
    expect(() => split().branch('x')).toThrow(/branch 'x' of 'KSTREAM-BRANCH-0000000001' has no predicate: .* defaultBranch\('x'\)/);
    expect(() => split().branch('x', 'true' as never)).toThrow(/needs a function, but got string/);
  });

  it('takes no branch after its end', () => {
    const split = new StreamsBuilder().stream('a').split().branch('x', always);
    split.defaultBranch('rest');
    expect(() => split.branch('y', always)).toThrow(/is ended and takes no more branches/);
    expect(() => split.defaultBranch('z')).toThrow(TopologyError);
  });
});

describe('after build', () => {
  it('streams and builder take no more steps', () => {
    const builder = new StreamsBuilder();
    const stream = used(builder.stream('a'));
    const split = stream.split();
    split.defaultBranch('rest');
    builder.build();
    for (const late of [
      () => stream.filter(always),
      () => stream.to('x'),
      () => stream.sink(noSink()),
      () => stream.split(),
      () => split.noDefaultBranch(),
      () => builder.stream('b'),
    ]) {
      expect(late).toThrow(TopologyError);
    }
    expect(() => stream.filter(always)).toThrow(/the topology is built and can no longer be changed/);
  });

  it('the topology is frozen, and the same when it is asked for again', () => {
    const builder = new StreamsBuilder();
    used(builder.stream('a'));
    const topology = builder.build();
    expect(builder.build()).toBe(topology);
    const frozen = [
      topology,
      topology.graph,
      topology.subTopologies,
      topology.sinkStages,
      topology.subTopologies[0],
      ...topology.graph.nodes.values(),
    ];
    expect(frozen.map((part) => Object.isFrozen(part))).toEqual(frozen.map(() => true));
  });
});

describe('merge', () => {
  it('refuses streams of another builder, itself, and what is no stream', () => {
    const stream = new StreamsBuilder().stream('a');
    expect(() => stream.merge(new StreamsBuilder().stream('b'))).toThrow(/merges streams of two builders/);
    expect(() => stream.merge(stream)).toThrow(/merges the stream with itself/);
    expect(() => stream.merge('b' as never)).toThrow(/needs a stream to merge with/);
  });
});

describe('steps', () => {
  it('refuse what is no function', () => {
    const stream = new StreamsBuilder().stream('a');
    for (const step of ['filter', 'filterNot', 'map', 'mapValues', 'flatMap', 'flatMapValues', 'selectKey', 'peek', 'foreach'] as const) {
      const add = (given: unknown) => () => (stream[step] as (given: unknown) => unknown)(given);
      expect(add(undefined)).toThrow(/^step 'KSTREAM-[A-Z-]+\d{10}' needs a function, but got undefined$/);
      expect(add(async () => [])).toThrow(/was given an async function/);
    }
    expect(() => stream.flatMapValues(async function* () {} as never)).toThrow(/was given an async function/);
    expect(() => stream.to((async () => 'x') as never)).toThrow(/was given an async function/);
    expect(() => stream.to('x', { partitioner: 3 as never })).toThrow(/needs a function, but got number/);
    expect(() => stream.to('x', { headers: [] as never })).toThrow(/needs a function, but got object/);
    expect(() => stream.split().branch('x', (async () => true) as never)).toThrow(/was given an async function/);
  });
});

describe('serdes', () => {
  it('that are missing after a change are an error that names the step', () => {
    const stream = new StreamsBuilder().stream('a', { key: string(), value: string() });
    const to = (changed: { to(topic: string, options?: object): void }, options?: object) => () =>
      changed.to('out', { name: 'output', ...options });
    expect(to(stream.mapValues(Number) as never)).toThrow(
      /^step 'output' needs \{ value: \.\.\. \}: a step before it has changed the value/,
    );
    expect(to(stream.selectKey(Number) as never)).toThrow(/^step 'output' needs \{ key: \.\.\. \}/);
    for (const changed of [
      stream.map((value, key) => [value, key]),
      stream.flatMap((value, key) => [[value, key]]),
      stream.merge(stream.filter(always)),
    ]) {
      expect(to(changed as never)).toThrow(/needs \{ key/);
      expect(to(changed as never, { key: string() })).toThrow(/needs \{ value/);
    }
  });

  it('that are functions are refused with what to do', () => {
    const builder = new StreamsBuilder();
    expect(() => builder.stream('a', { value: string as unknown as Serde<string> })).toThrow(/value serde that is none: call it/);
    expect(() => builder.stream('a').to('b', { key: string as never })).toThrow(/key serde that is none: call it/);
  });
});

describe('sink', () => {
  it('needs a name of its own where the generated one is taken, so that no progress is mixed up', () => {
    const stream = new StreamsBuilder().stream(['a', 'b']);
    stream.filter(always).sink(noSink());
    expect(() => stream.sink(noSink())).toThrow(/a second sink would have the name 'postgres-a-b': give it a \{ name \}/);
    expect(() => stream.sink(noSink(), { name: 'second' })).not.toThrow();
    expect(() => stream.sink(noSink('http'))).not.toThrow();
  });

  it('has a generated name that steps before it do not change', () => {
    const stageName = (steps: number) => {
      const builder = new StreamsBuilder();
      let stream = builder.stream(/^a[0-9]+$/);
      for (let i = 0; i < steps; i++) stream = stream.filter(always);
      stream.sink(noSink());
      return builder.build().sinkStages.map(({ name }) => name);
    };
    expect(stageName(0)).toEqual(['postgres-_a_0-9_']);
    expect(stageName(3)).toEqual(stageName(0));
  });

  it('refuses what is no sink', () => {
    expect(() => new StreamsBuilder().stream('a').sink('topic' as never)).toThrow(/something else than a sink/);
  });
});

describe('fingerprint', () => {
  const topologyWith = (topic: string, predicate: () => boolean, name?: string) => {
    const builder = new StreamsBuilder();
    builder
      .stream('a')
      .filter(predicate, name === undefined ? {} : { name })
      .to(topic);
    return builder.build().fingerprint;
  };

  it('changes with the shape, not with the code', () => {
    const print = topologyWith('out', always);
    expect(print).toMatch(/^[0-9a-f]{16}$/);
    expect(topologyWith('out', () => false)).toBe(print);
    expect(topologyWith('elsewhere', always)).not.toBe(print);
    expect(topologyWith('out', always, 'keep')).not.toBe(print);
  });
});
