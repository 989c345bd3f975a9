import type { NodeDescription, TopologyDescription } from './description.ts';

/** As `Topology.describe()` of Kafka Streams prints it, with guarantees and sink stages. */
export function text(description: TopologyDescription): string {
  const lines = ['Topologies:'];
  for (const { id, nodes } of description.subTopologies) lines.push(`   Sub-topology: ${id}`, ...nodes.flatMap(nodeLines), '');
  for (const { name, group, nodes } of description.sinkStages) {
    lines.push(`   Sink stage: ${name} (group: ${group})`, ...nodes.flatMap(nodeLines), '');
  }
  return lines.join('\n');
}

function nodeLines(node: NodeDescription): string[] {
  const lines = [`    ${heading(node)}`];
  if (node.guarantee !== undefined) lines.push(`      guarantee: ${node.guarantee}`);
  if (node.loop === true) lines.push('      loop: this sub-topology reads the topic too');
  if (node.kind === 'source' || node.kind === 'processor') lines.push(`      --> ${names(node.successors)}`);
  if (node.kind !== 'source') lines.push(`      <-- ${names(node.predecessors)}`);
  return lines;
}

function heading(node: NodeDescription): string {
  switch (node.kind) {
    case 'source': {
      const topics = typeof node.topics === 'string' ? node.topics : `[${(node.topics ?? []).join(', ')}]`;
      return `Source: ${node.name} (topics: ${topics}, key: ${node.keySerde}, value: ${node.valueSerde})`;
    }
    case 'processor':
      return `Processor: ${node.name} (operation: ${node.operation})`;
    case 'topic-sink':
      return `Sink: ${node.name} (topic: ${node.topic ?? 'computed for each record'})`;
    case 'external-sink':
      return `External sink: ${node.name} (kind: ${node.sink?.kind}, mode: ${node.sink?.mode})`;
  }
}

function names(list: readonly string[]): string {
  return list.length === 0 ? 'none' : list.join(', ');
}
