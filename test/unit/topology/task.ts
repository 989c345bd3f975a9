import type { RecordContext } from '../../../src/model/record.ts';
import type { Emit, Step } from '../../../src/operators/step.ts';
import type { GraphNode } from '../../../src/topology/graph.ts';
import type { SinkStage, SubTopology, Topology } from '../../../src/topology/topology.ts';
import { SentRecords } from '../operators/chain.ts';

/** The steps of a part of a topology, put together from its nodes in the plainest way. */
export class PlainTask {
  readonly collector = new SentRecords();
  readonly emitted: (readonly [key: unknown, value: unknown])[] = [];
  readonly #steps = new Map<string, Step>();
  readonly #part: SubTopology | SinkStage;

  constructor(topology: Topology, part: SubTopology | SinkStage | undefined) {
    if (part === undefined) throw new Error('the topology has no such part');
    this.#part = part;
    const members = new Set<GraphNode>([...part.sources, ...part.processors, ...('sinks' in part ? part.sinks : [part.sink])]);
    // In the order in which they were added, which is that of the graph.
    const nodes = [...topology.graph.nodes.values()].filter((node) => members.has(node));
    for (const node of nodes) this.#build(node, nodes);
  }

  /** Feeds one record as it would come from the topic. */
  feed(topic: string, key: string | null, value: string | null, changes: Partial<RecordContext> = {}): void {
    const source = this.#part.sources.find(({ topics, pattern }) => topics.includes(topic) || pattern?.test(topic));
    if (source === undefined) throw new Error(`no source reads ${topic}`);
    const bytes = (text: string | null) => (text === null ? null : Buffer.from(text));
    this.#steps.get(source.name)?.(
      source.keySerde.deserialise(bytes(key), { topic, part: 'key' }),
      source.valueSerde.deserialise(bytes(value), { topic, part: 'value' }),
      { topic, partition: 0, offset: 0n, timestamp: 0, headers: [], ...changes },
    );
  }

  /** Topic, key and value of what was sent. */
  get sent(): readonly (readonly [topic: string, key: string | null, value: string | null])[] {
    const text = (payload: string | Uint8Array | null) => (payload === null ? null : Buffer.from(payload as Uint8Array).toString());
    return this.collector.sent.map(({ topic, key, value }) => [topic, text(key), text(value)]);
  }

  #build(node: GraphNode, nodes: readonly GraphNode[]): Step {
    const known = this.#steps.get(node.name);
    if (known !== undefined) return known;
    const children = new Map(
      nodes.filter(({ parents }) => parents.includes(node.name)).map((child) => [child.name, this.#build(child, nodes)]),
    );
    const forward: Step = (key, value, context) => children.forEach((child) => child(key, value, context));
    const emit: Emit = (key, value) => void this.emitted.push([key, value]);
    const step =
      node.kind === 'external-sink'
        ? emit
        : node.kind === 'source'
          ? forward
          : node.operator(forward, children, { collector: this.collector, emit });
    this.#steps.set(node.name, step);
    return step;
  }
}
