import { TopologyError } from '../model/errors.ts';
import type { Graph, GraphNode, SourceNode } from './graph.ts';
import { requireStepName } from './names.ts';

/** A graph while it is being written: gives names, keeps them unique, and takes no more nodes once it is frozen. */
export class GraphDraft {
  readonly #nodes = new Map<string, GraphNode>();
  /** What is begun and not yet complete (a split without its last call), with the message for it. */
  readonly #unfinished = new Map<string, string>();
  #index = 0;
  #frozen = false;

  /**
   * The given name, or `<prefix>0000000001`. The index is used up in both cases, as Kafka Streams does, so that naming one step does not
   * rename those after it.
   */
  name(prefix: string, given: string | undefined): string {
    this.requireOpen();
    const generated = `${prefix}${String(this.#index++).padStart(10, '0')}`;
    if (given === undefined) return generated;
    requireStepName(given);
    return given;
  }

  add(node: GraphNode): void {
    this.requireOpen();
    if (this.#nodes.has(node.name)) {
      throw new TopologyError(`two steps have the name '${node.name}': names are unique in a topology, change the { name } of one of them`);
    }
    this.#nodes.set(node.name, node);
  }

  node(name: string): GraphNode | undefined {
    return this.#nodes.get(name);
  }

  nodes(): readonly GraphNode[] {
    return [...this.#nodes.values()];
  }

  sources(): readonly SourceNode[] {
    return this.nodes().filter((node) => node.kind === 'source');
  }

  begin(name: string, complaint: string): void {
    this.#unfinished.set(name, complaint);
  }

  finish(name: string): void {
    this.#unfinished.delete(name);
  }

  requireOpen(): void {
    if (this.#frozen) {
      throw new TopologyError(
        'the topology is built and can no longer be changed: add all steps before build(), or use a new StreamsBuilder',
      );
    }
  }

  /** The graph as it is now, with nodes that no longer change. */
  graph(): Graph {
    this.requireOpen();
    for (const complaint of this.#unfinished.values()) throw new TopologyError(complaint);
    const nodes = new Map<string, GraphNode>();
    for (const [name, node] of this.#nodes) {
      Object.freeze(node.parents);
      if (node.kind === 'source') Object.freeze(node.topics);
      nodes.set(name, Object.freeze(node));
    }
    return Object.freeze({ nodes });
  }

  freeze(): void {
    this.#frozen = true;
  }
}
