import { describe, expect, it } from 'vitest';
import { describe as describeTopology, json, StreamsBuilder, string, type TopologyDescription } from '../../../src/index.ts';
import { noSink } from './no-sink.ts';

function topology() {
  const builder = new StreamsBuilder();
  const flights = builder.stream(['flights', 'archive'], { key: string(), value: json<{ delay: number }>() });
  const late = flights.filter(({ delay }) => delay > 15, { name: 'only-late' });
  late.to('late-flights');
  late.to('flights', { name: 'again' });
  late.peek(() => undefined).sink(noSink(), { name: 'late-table' });
  builder.stream(/^clicks-"[a-z]+"$/).foreach(() => undefined);
  flights.to(() => 'anywhere', { name: 'anywhere' });
  return builder.build();
}

describe('the description of a topology', () => {
  it('prints what Kafka Streams prints, and the guarantee of each edge across a boundary', () => {
    expect(describeTopology(topology())).toBe(`Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [flights, archive], key: string, value: json)
      guarantee: read_committed
      --> only-late, anywhere
    Processor: only-late (operation: filter)
      --> KSTREAM-SINK-0000000002, again
      <-- KSTREAM-SOURCE-0000000000
    Sink: KSTREAM-SINK-0000000002 (topic: late-flights)
      guarantee: exactly-once (Kafka transaction)
      <-- only-late
    Sink: again (topic: flights)
      guarantee: exactly-once (Kafka transaction)
      loop: this sub-topology reads the topic too
      <-- only-late
    Sink: anywhere (topic: computed for each record)
      guarantee: exactly-once (Kafka transaction)
      <-- KSTREAM-SOURCE-0000000000

   Sub-topology: 1
    Source: KSTREAM-SOURCE-0000000006 (topics: /^clicks-"[a-z]+"$/, key: nullable(bytes), value: nullable(bytes))
      guarantee: read_committed
      --> KSTREAM-FOREACH-0000000007
    Processor: KSTREAM-FOREACH-0000000007 (operation: foreach)
      guarantee: not covered: runs again when a transaction is aborted
      --> none
      <-- KSTREAM-SOURCE-0000000006

   Sink stage: late-table (group: <application id>-late-table)
    Source: KSTREAM-SOURCE-0000000000 (topics: [flights, archive], key: string, value: json)
      guarantee: read_committed
      --> only-late
    Processor: only-late (operation: filter)
      --> KSTREAM-PEEK-0000000004
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-PEEK-0000000004 (operation: peek)
      guarantee: not covered: runs again when a batch is read again
      --> late-table
      <-- only-late
    External sink: late-table (kind: postgres, mode: exactly-once)
      guarantee: effectively once (position and key in the transaction)
      <-- KSTREAM-PEEK-0000000004
`);
  });

  it.each([
    ['exactly-once', 'exactly-once (Kafka transaction)', 'runs again when a transaction is aborted'],
    ['at-least-once', 'at-least-once (written again when a worker dies)', 'runs again when a worker dies'],
    ['at-most-once', 'at-most-once (lost when a worker dies)', 'does not run for what is lost'],
  ] as const)('says what %s means for outputs and side effects', (guarantee, output, sideEffect) => {
    const text = describeTopology(topology(), { guarantee });
    expect(text).toContain(`Sink: again (topic: flights)\n      guarantee: ${output}\n`);
    expect(text).toContain(`(operation: foreach)\n      guarantee: not covered: ${sideEffect}`);
    expect(text).toContain('guarantee: effectively once (position and key in the transaction)');
  });

  it('gives the same as JSON', () => {
    const description = JSON.parse(describeTopology(topology(), { format: 'json', guarantee: 'at-least-once' })) as TopologyDescription;
    expect(description.guarantee).toBe('at-least-once');
    expect(description.fingerprint).toBe(topology().fingerprint);
    expect(description.subTopologies.map(({ nodes }) => nodes.map(({ name }) => name))).toEqual([
      ['KSTREAM-SOURCE-0000000000', 'only-late', 'KSTREAM-SINK-0000000002', 'again', 'anywhere'],
      ['KSTREAM-SOURCE-0000000006', 'KSTREAM-FOREACH-0000000007'],
    ]);
    expect(description.sinkStages[0]?.nodes.at(-1)).toEqual({
      name: 'late-table',
      kind: 'external-sink',
      predecessors: ['KSTREAM-PEEK-0000000004'],
      successors: [],
      sink: { kind: 'postgres', mode: 'exactly-once' },
      guarantee: 'effectively once (position and key in the transaction)',
    });
  });

  it('draws a flowchart with guarantees on its edges', () => {
    const chart = describeTopology(topology(), { format: 'mermaid' });
    expect(chart).toMatch(/^flowchart LR\n/);
    const idOf = (label: string) => /^ *(\w+)\W+"/.exec(chart.split('\n').find((line) => line.includes(`"${label}"`)) ?? '')?.[1];
    expect(chart).toContain(`${idOf('flights')} -- "read_committed" --> ${idOf('KSTREAM-SOURCE-0000000000')}\n`);
    expect(chart).toContain(`${idOf('again')} -- "exactly-once (Kafka transaction)" --> ${idOf('flights')}\n`);
    expect(chart).toContain(' -- "effectively once (position and key in the transaction)" --> ');
    expect(chart).toContain('[("/^clicks-#quot;[a-z]+#quot;$/")]');
  });

  it('refuses a format that it does not know', () => {
    expect(() => describeTopology(topology(), { format: 'svg' as never })).toThrow(
      'describe knows the formats text, mermaid, json, but not svg',
    );
  });
});
