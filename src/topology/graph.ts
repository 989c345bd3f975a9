import type { Operator } from '../operators/step.ts';
import type { Serde } from '../serde/serde.ts';
import type { Sink } from '../sink/port.ts';

/** A frozen graph: what the builder made, before it is cut into sub-topologies. Node names are unique. */
export interface Graph {
  readonly nodes: ReadonlyMap<string, GraphNode>;
}

interface NodeBase {
  readonly name: string;
  /** Names of the nodes that it receives from; empty for a source. */
  readonly parents: readonly string[];
}

export interface SourceNode extends NodeBase {
  readonly kind: 'source';
  readonly topics: readonly string[];
  readonly pattern?: RegExp;
  readonly keySerde: Serde<unknown>;
  readonly valueSerde: Serde<unknown>;
}

/** `operation` is the word that `describe` prints: `filter`, `mapValues`... */
export interface ProcessorNode extends NodeBase {
  readonly kind: 'processor';
  readonly operation: string;
  readonly operator: Operator;
}

/** Writes to Kafka. `topic` undefined: computed per record. */
export interface TopicSinkNode extends NodeBase {
  readonly kind: 'topic-sink';
  readonly topic: string | undefined;
  readonly operator: Operator;
}

/** Leaves Kafka. */
export interface ExternalSinkNode extends NodeBase {
  readonly kind: 'external-sink';
  readonly sink: Sink<unknown, unknown>;
}

export type GraphNode = SourceNode | ProcessorNode | TopicSinkNode | ExternalSinkNode;
