import type { Guarantee } from '../model/guarantee.ts';
import type { GraphNode, SourceNode } from './graph.ts';
import type { Topology } from './topology.ts';

/** A topology as `describe` shows it: what runs separately, and on each edge that leaves it the guarantee that holds there. */
export interface TopologyDescription {
  readonly fingerprint: string;
  /** Of the application that is to run it. */
  readonly guarantee: Guarantee;
  readonly subTopologies: readonly { readonly id: number; readonly nodes: readonly NodeDescription[] }[];
  readonly sinkStages: readonly { readonly name: string; readonly group: string; readonly nodes: readonly NodeDescription[] }[];
}

export interface NodeDescription {
  readonly name: string;
  readonly kind: GraphNode['kind'];
  readonly predecessors: readonly string[];
  readonly successors: readonly string[];
  /** Of a source: the topics, or the pattern as it is written in JavaScript. */
  readonly topics?: readonly string[] | string;
  readonly keySerde?: string;
  readonly valueSerde?: string;
  /** Of a processor: what it does. */
  readonly operation?: string;
  /** Of a sink to Kafka; null where it is computed for each record. */
  readonly topic?: string | null;
  /** Whether it writes to a topic that its own sub-topology reads. */
  readonly loop?: boolean;
  /** Of a sink outside of Kafka. */
  readonly sink?: { readonly kind: string; readonly mode: string };
  /** What holds on the edge that crosses a boundary here; absent where none does. */
  readonly guarantee?: string;
}

const READ = 'read_committed';

const WRITE: Readonly<Record<Guarantee, string>> = {
  'exactly-once': 'exactly-once (Kafka transaction)',
  'at-least-once': 'at-least-once (written again when a worker dies)',
  'at-most-once': 'at-most-once (lost when a worker dies)',
};

const SIDE_EFFECT: Readonly<Record<Guarantee, string>> = {
  'exactly-once': 'not covered: runs again when a transaction is aborted',
  'at-least-once': 'not covered: runs again when a worker dies',
  'at-most-once': 'not covered: does not run for what is lost when a worker dies',
};

const SIDE_EFFECT_IN_STAGE = 'not covered: runs again when a batch is read again';

/** The operations that call a function for its side effect. */
const SIDE_EFFECTS: ReadonlySet<string> = new Set(['peek', 'foreach']);

export function describeStructure(topology: Topology, guarantee: Guarantee): TopologyDescription {
  return {
    fingerprint: topology.fingerprint,
    guarantee,
    subTopologies: topology.subTopologies.map(({ id, sources, processors, sinks }) => ({
      id,
      nodes: part(topology, [...sources, ...processors, ...sinks], WRITE[guarantee], SIDE_EFFECT[guarantee]),
    })),
    sinkStages: topology.sinkStages.map(({ name, sources, processors, sink }) => ({
      name,
      group: `<application id>-${name}`,
      nodes: part(topology, [...sources, ...processors, sink], '', SIDE_EFFECT_IN_STAGE),
    })),
  };
}

/** Nodes that run together, in the order in which they were added; edges to others are left out. */
function part(topology: Topology, members: readonly GraphNode[], write: string, sideEffect: string): NodeDescription[] {
  const names = new Set(members.map(({ name }) => name));
  const nodes = [...topology.graph.nodes.values()].filter(({ name }) => names.has(name));
  const sources = nodes.filter((node) => node.kind === 'source');
  return nodes.map((node) => ({
    name: node.name,
    kind: node.kind,
    predecessors: node.parents,
    successors: nodes.filter(({ parents }) => parents.includes(node.name)).map(({ name }) => name),
    ...detail(node, sources, write, sideEffect),
  }));
}

function detail(node: GraphNode, sources: readonly SourceNode[], write: string, sideEffect: string): Partial<NodeDescription> {
  switch (node.kind) {
    case 'source':
      return {
        topics: node.pattern === undefined ? node.topics : String(node.pattern),
        keySerde: node.keySerde.name,
        valueSerde: node.valueSerde.name,
        guarantee: READ,
      };
    case 'processor':
      return { operation: node.operation, ...(SIDE_EFFECTS.has(node.operation) ? { guarantee: sideEffect } : {}) };
    case 'topic-sink':
      return { topic: node.topic ?? null, loop: sources.some((source) => reads(source, node.topic)), guarantee: write };
    case 'external-sink':
      return { sink: { kind: node.sink.kind, mode: node.sink.mode }, guarantee: node.sink.guarantee };
  }
}

function reads(source: SourceNode, topic: string | undefined): boolean {
  return topic !== undefined && (source.topics.includes(topic) || source.pattern?.test(topic) === true);
}
