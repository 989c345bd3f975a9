import type { NodeDescription, TopologyDescription } from './description.ts';

/** A flowchart: topics as cylinders, what runs together as boxes, and on each edge across a boundary its guarantee. */
export function mermaid(description: TopologyDescription): string {
  const chart = new Flowchart();
  for (const { id, nodes } of description.subTopologies) chart.part(`Sub-topology ${id}`, nodes);
  for (const { name, nodes } of description.sinkStages) chart.part(`Sink stage ${name}`, nodes);
  return chart.toString();
}

class Flowchart {
  readonly #lines: string[] = [];
  readonly #edges: string[] = [];
  readonly #topics = new Map<string, string>();
  #parts = 0;

  part(title: string, nodes: readonly NodeDescription[]): void {
    const part = `p${this.#parts++}`;
    const ids = new Map(nodes.map(({ name }, index) => [name, `${part}n${index}`]));
    this.#lines.push(`  subgraph ${part}[${quoted(title)}]`);
    for (const node of nodes) {
      if (node.kind !== 'external-sink') this.#lines.push(`    ${ids.get(node.name)}[${quoted(label(node))}]`);
    }
    this.#lines.push('  end');
    for (const node of nodes) {
      const id = ids.get(node.name) ?? '';
      if (node.kind === 'external-sink') this.#lines.push(`  ${id}[/${quoted(`${node.name} (${node.sink?.kind})`)}/]`);
      for (const parent of node.predecessors)
        this.#edge(ids.get(parent) ?? '', id, node.kind === 'external-sink' ? node.guarantee : undefined);
      if (node.kind === 'source') {
        const topics = typeof node.topics === 'string' ? [node.topics] : (node.topics ?? []);
        for (const topic of topics) this.#edge(this.#topic(topic), id, node.guarantee);
      }
      if (node.kind === 'topic-sink') this.#edge(id, this.#topic(node.topic ?? `computed by ${node.name}`), node.guarantee);
    }
  }

  #topic(name: string): string {
    const known = this.#topics.get(name);
    if (known !== undefined) return known;
    const id = `t${this.#topics.size}`;
    this.#topics.set(name, id);
    this.#lines.push(`  ${id}[(${quoted(name)})]`);
    return id;
  }

  #edge(from: string, to: string, guarantee: string | undefined): void {
    this.#edges.push(guarantee === undefined ? `  ${from} --> ${to}` : `  ${from} -- ${quoted(guarantee)} --> ${to}`);
  }

  toString(): string {
    return `${['flowchart LR', ...this.#lines, ...this.#edges].join('\n')}\n`;
  }
}

function label(node: NodeDescription): string {
  if (node.kind !== 'processor') return node.name;
  const what = node.guarantee === undefined ? node.operation : `${node.operation}, ${node.guarantee}`;
  return `${node.name} (${what})`;
}

/** Text in quotes, with Mermaid's own escapes. */
function quoted(content: string): string {
  const escapes: Readonly<Record<string, string>> = { '#': '#35;', '"': '#quot;', '<': '#lt;', '>': '#gt;', '&': '#amp;' };
  return `"${content.replaceAll(/[#"<>&]/g, (character) => escapes[character] ?? character)}"`;
}
