import type { ExternalSinkNode, Graph, ProcessorNode, SourceNode, TopicSinkNode } from './graph.ts';

/**
 * Nodes that are connected with each other, from source topics to sink topics: it runs as one task per partition, and its source topics
 * are read by the application's group.
 */
export interface SubTopology {
  readonly id: number;
  readonly sources: readonly SourceNode[];
  readonly processors: readonly ProcessorNode[];
  readonly sinks: readonly TopicSinkNode[];
  /** Processors and sinks in the order in which they were added, which is the order in which a record is handed to them. */
  readonly steps: readonly (ProcessorNode | TopicSinkNode)[];
}

/**
 * The path from sources to one external sink. It reads committed records in a group of its own (`<application id>-<stage name>`), so a slow or
 * broken target holds back nothing but itself.
 */
export interface SinkStage {
  readonly name: string;
  readonly sources: readonly SourceNode[];
  /** The stateless steps between source and sink, run again in this stage. */
  readonly processors: readonly ProcessorNode[];
  readonly sink: ExternalSinkNode;
}

/** What an application runs: frozen, and the same for each instance of it. */
export interface Topology {
  readonly graph: Graph;
  readonly subTopologies: readonly SubTopology[];
  readonly sinkStages: readonly SinkStage[];
  /** Changes with the shape of the topology, not with the code of its steps. */
  readonly fingerprint: string;
}
