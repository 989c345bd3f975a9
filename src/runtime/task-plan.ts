import { TopologyError } from '../model/errors.ts';
import type { SourceNode } from '../topology/graph.ts';
import type { SubTopology } from '../topology/topology.ts';

/** Which sub-topology and which of its sources reads a topic. */
export interface TopicReader {
  readonly subTopology: SubTopology;
  readonly source: SourceNode;
}

/** As Kafka Streams writes it: sub-topology and partition number. */
export function taskId(subTopology: number, partition: number): string {
  return `${subTopology}_${partition}`;
}

/** Maps topics to the sub-topologies that read them. */
export class TaskPlan {
  readonly topics: readonly string[];
  readonly patterns: readonly RegExp[];
  /** The topics that steps write to by a fixed name. */
  readonly outputTopics: readonly string[];
  readonly #readers: readonly TopicReader[];
  readonly #known = new Map<string, TopicReader | undefined>();

  constructor(subTopologies: readonly SubTopology[]) {
    this.#readers = subTopologies.flatMap((subTopology) => subTopology.sources.map((source) => ({ subTopology, source })));
    this.topics = [...new Set(this.#readers.flatMap(({ source }) => source.topics))];
    this.patterns = this.#readers.flatMap(({ source }) => source.pattern ?? []);
    this.outputTopics = [
      ...new Set(subTopologies.flatMap(({ sinks }) => sinks.map((sink) => sink.topic)).filter((topic) => topic !== undefined)),
    ];
  }

  /** Undefined: no source reads it. Throws TopologyError where two do, which for patterns shows only when a topic matches both. */
  reader(topic: string): TopicReader | undefined {
    if (this.#known.has(topic)) return this.#known.get(topic);
    const readers = this.#readers.filter(({ source }) => source.topics.includes(topic) || source.pattern?.test(topic) === true);
    const [reader, second] = readers;
    if (reader !== undefined && second !== undefined) {
      throw new TopologyError(
        `topic '${topic}' is read by the streams '${reader.source.name}' and '${second.source.name}': make their patterns disjoint, or read it once`,
      );
    }
    this.#known.set(topic, reader);
    return reader;
  }
}
