import { createHash } from 'node:crypto';
import type { Graph, GraphNode } from './graph.ts';

/** 16 hexadecimal digits that change with names, connections, topics, serdes and sinks, not with the code of the steps. */
export function fingerprint(graph: Graph): string {
  const shape = JSON.stringify([...graph.nodes.values()].map(shapeOf));
  return createHash('sha256').update(shape).digest('hex').slice(0, 16);
}

function shapeOf(node: GraphNode): readonly unknown[] {
  switch (node.kind) {
    case 'source':
      return [node.kind, node.name, node.topics, node.pattern?.toString() ?? null, node.keySerde.name, node.valueSerde.name];
    case 'processor':
      return [node.kind, node.name, node.parents, node.operation];
    case 'topic-sink':
      return [node.kind, node.name, node.parents, node.topic ?? null];
    case 'external-sink':
      return [node.kind, node.name, node.parents, node.sink.kind, node.sink.mode];
  }
}
