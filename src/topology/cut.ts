import { TopologyError } from '../model/errors.ts';
import type { ExternalSinkNode, Graph, GraphNode, ProcessorNode, SourceNode, TopicSinkNode } from './graph.ts';
import type { SinkStage, SubTopology } from './topology.ts';

/** Marks the outlets of a split, which pass records on and do nothing by themselves. */
export const BRANCH_OUTLET = 'branch';

/**
 * Cuts a graph into what runs separately: the connected parts of all that has an effect inside of the task, and one stage for each external
 * sink. Steps on the way to an external sink belong to its stage; they are in a sub-topology too only if something else needs them.
 */
export function cut(graph: Graph): { subTopologies: readonly SubTopology[]; sinkStages: readonly SinkStage[] } {
  const nodes = [...graph.nodes.values()];
  const effective = nodesWithEffect(nodes);
  const sinkStages = nodes.filter((node) => node.kind === 'external-sink').map((sink) => sinkStage(graph, sink));
  const subTopologies = components(nodes.filter((node) => effective.has(node.name))).map(subTopology);
  if (subTopologies.length === 0 && sinkStages.length === 0) {
    throw new TopologyError("the topology does nothing: add at least one step to a stream, such as to('topic')");
  }
  return { subTopologies: Object.freeze(subTopologies), sinkStages: Object.freeze(sinkStages) };
}

/** A node has an effect if it, or what follows it, ends in something other than an external sink or an unused branch. */
function nodesWithEffect(nodes: readonly GraphNode[]): ReadonlySet<string> {
  const isParent = new Set(nodes.flatMap((node) => node.parents));
  const effective = new Set<string>();
  // A node is added after its parents, so that one pass from the end sees all children first.
  for (const node of nodes.toReversed()) {
    const isEffect =
      !isParent.has(node.name) && (node.kind === 'topic-sink' || (node.kind === 'processor' && node.operation !== BRANCH_OUTLET));
    if (!isEffect && !effective.has(node.name)) continue;
    effective.add(node.name);
    for (const parent of node.parents) effective.add(parent);
  }
  return effective;
}

/** Connected components in the order of their first nodes, by union-find. */
function components(nodes: readonly GraphNode[]): GraphNode[][] {
  const leader = new Map<string, string>(nodes.map((node) => [node.name, node.name]));
  const find = (name: string): string => {
    let at = name;
    for (let next = leader.get(at); next !== undefined && next !== at; next = leader.get(at)) at = next;
    leader.set(name, at);
    return at;
  };
  for (const node of nodes) for (const parent of node.parents) leader.set(find(node.name), find(parent));

  const groups = new Map<string, GraphNode[]>();
  for (const node of nodes) {
    const root = find(node.name);
    const group = groups.get(root);
    if (group === undefined) groups.set(root, [node]);
    else group.push(node);
  }
  return [...groups.values()];
}

function subTopology(nodes: readonly GraphNode[], id: number): SubTopology {
  return Object.freeze({
    id,
    sources: Object.freeze(nodes.filter((node): node is SourceNode => node.kind === 'source')),
    processors: Object.freeze(nodes.filter((node): node is ProcessorNode => node.kind === 'processor')),
    sinks: Object.freeze(nodes.filter((node): node is TopicSinkNode => node.kind === 'topic-sink')),
    steps: Object.freeze(
      nodes.filter((node): node is ProcessorNode | TopicSinkNode => node.kind === 'processor' || node.kind === 'topic-sink'),
    ),
  });
}

function sinkStage(graph: Graph, sink: ExternalSinkNode): SinkStage {
  const path = new Set<string>();
  const pending = [...sink.parents];
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    if (path.has(name)) continue;
    path.add(name);
    pending.push(...(graph.nodes.get(name)?.parents ?? []));
  }
  const nodes = [...graph.nodes.values()].filter((node) => path.has(node.name));
  return Object.freeze({
    name: sink.name,
    sources: Object.freeze(nodes.filter((node): node is SourceNode => node.kind === 'source')),
    processors: Object.freeze(nodes.filter((node): node is ProcessorNode => node.kind === 'processor')),
    sink,
  });
}
