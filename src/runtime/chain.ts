import { TopologyError } from '../model/errors.ts';
import type { Step, TaskContext } from '../operators/step.ts';
import type { ExternalSinkNode, ProcessorNode, SourceNode, TopicSinkNode } from '../topology/graph.ts';

/** A part of the graph that runs by itself: a sub-topology or a sink stage. */
export interface ChainNodes {
  readonly sources: readonly SourceNode[];
  readonly steps: readonly (ProcessorNode | TopicSinkNode)[];
  /** The node of a sink stage; what reaches it goes to `emit`. */
  readonly sink?: ExternalSinkNode;
}

/**
 * Builds the steps of one task from its last nodes to its first ones. The answer holds, by source name, the step that takes that source's
 * deserialised records.
 */
export function buildChain(nodes: ChainNodes, task: TaskContext): ReadonlyMap<string, Step> {
  const running = nodes.steps;
  const childrenOf = new Map<string, string[]>();
  for (const node of [...running, ...(nodes.sink === undefined ? [] : [nodes.sink])]) {
    for (const parent of node.parents) {
      const children = childrenOf.get(parent);
      if (children === undefined) childrenOf.set(parent, [node.name]);
      else children.push(node.name);
    }
  }

  const byName = new Map(running.map((node) => [node.name, node]));
  const steps = new Map<string, Step>();
  const stepOf = (name: string): Step => {
    const built = steps.get(name);
    if (built !== undefined) return built;
    const step = build(name);
    steps.set(name, step);
    return step;
  };
  const build = (name: string): Step => {
    if (name === nodes.sink?.name) {
      if (task.emit === undefined) throw new TopologyError(`the sink '${name}' runs outside of a sink stage`);
      return task.emit;
    }
    const node = byName.get(name);
    if (node === undefined) throw new TopologyError(`the step '${name}' is named as a child, but is not part of what runs here`);
    const children = childSteps(name);
    return node.operator(forwardTo([...children.values()]), children, task);
  };
  const childSteps = (name: string): Map<string, Step> => new Map((childrenOf.get(name) ?? []).map((child) => [child, stepOf(child)]));

  return new Map(nodes.sources.map((source) => [source.name, forwardTo([...childSteps(source.name).values()])]));
}

/** One step that hands a record to several, in order. */
function forwardTo(steps: readonly Step[]): Step {
  const [first, second] = steps;
  if (first === undefined) return () => undefined;
  if (second === undefined) return first;
  if (steps.length === 2) {
    return (key, value, context) => {
      first(key, value, context);
      second(key, value, context);
    };
  }
  return (key, value, context) => {
    for (let i = 0; i < steps.length; i++) steps[i]!(key, value, context);
  };
}
