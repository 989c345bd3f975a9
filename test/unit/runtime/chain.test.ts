import { describe, expect, it } from 'vitest';
import { json, StreamsBuilder, string } from '../../../src/index.ts';
import type { Collector } from '../../../src/operators/step.ts';
import { buildChain } from '../../../src/runtime/chain.ts';

describe('the chain of a sub-topology', () => {
  it('hands a record to its children in the order in which they were added, be they steps or sinks', () => {
    const builder = new StreamsBuilder();
    const source = builder.stream('numbers', { key: string(), value: json<number>() });
    source.to('out');
    source.mapValues((value) => value * 10).to('out', { value: json() });
    source.to('out');
    const sent: unknown[] = [];
    const collector: Collector = { partitionCount: () => 1, send: (_topic, _partition, _key, value) => void sent.push(value) };
    const [subTopology] = builder.build().subTopologies;
    const [step] = buildChain(subTopology!, { collector }).values();
    step!('a', 1, { topic: 'numbers', partition: 0, offset: 0n, timestamp: 0, headers: [] });
    expect(sent).toEqual(['1', '10', '1']);
  });
});
