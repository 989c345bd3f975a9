import { TopologyError } from '../model/errors.ts';
import { bytes } from '../serde/bytes.ts';
import { nullable } from '../serde/nullable.ts';
import type { Serde } from '../serde/serde.ts';
import { cut } from './cut.ts';
import { fingerprint } from './fingerprint.ts';
import type { SourceNode } from './graph.ts';
import { GraphDraft } from './graph-draft.ts';
import { GraphStream } from './graph-stream.ts';
import type { KStream } from './kstream.ts';
import { requireTopicName } from './names.ts';
import type { Raw, StepOptions, StreamOptions } from './stream-options.ts';
import type { Topology } from './topology.ts';

/** One topic, several, or all whose name a pattern matches (`pattern.test(name)`: anchor it with ^ and $ where the whole name is meant). */
export type TopicSelection = string | readonly string[] | RegExp;

/**
 * Where a topology begins: makes streams from topics, and at the end the topology.
 *
 * ```ts run
 * import { json, StreamsBuilder, string } from 'tidemark';
 *
 * const builder = new StreamsBuilder();
 * builder
 *   .stream('orders', { key: string(), value: json<{ amount: number }>() })
 *   .filter((order) => order.amount > 100)
 *   .to('large-orders');
 * export default builder.build();
 * ```
 */
export class StreamsBuilder {
  readonly #draft = new GraphDraft();
  #topology: Topology | undefined;

  /**
   * Reads one or more topics. Tasks are made per partition number over all topics of the stream, as in Kafka Streams.
   *
   * The same topics may be read more than once, with the same serde objects: it is one source. Two selections that overlap without being equal
   * are a TopologyError, as in Kafka Streams; so is a topic that a pattern of another stream matches.
   *
   * ```ts run
   * builder.stream('raw-bytes').filter((value) => value !== null);
   * builder.stream(['orders-eu', 'orders-us'], { key: string(), value: json<Flight>(), name: 'orders' });
   * builder.stream(/^clicks-[a-z]+$/, { value: string() });
   * ```
   */
  stream<K, V>(
    topics: TopicSelection,
    options: StepOptions & { readonly key: Serde<K>; readonly value: Serde<V> },
  ): KStream<K, V, 'known', 'known'>;
  stream<K>(
    topics: TopicSelection,
    options: StepOptions & { readonly key: Serde<K>; readonly value?: never },
  ): KStream<K, Raw, 'known', 'known'>;
  stream<V>(
    topics: TopicSelection,
    options: StepOptions & { readonly key?: never; readonly value: Serde<V> },
  ): KStream<Raw, V, 'known', 'known'>;
  stream(
    topics: TopicSelection,
    options?: StepOptions & { readonly key?: never; readonly value?: never },
  ): KStream<Raw, Raw, 'known', 'known'>;
  stream(topics: TopicSelection, options: StreamOptions<unknown, unknown> = {}): KStream<unknown, unknown, 'known', 'known'> {
    const name = this.#draft.name('KSTREAM-SOURCE-', options.name);
    const key = requireSerde(options.key ?? RAW, name, 'key');
    const value = requireSerde(options.value ?? RAW, name, 'value');
    const source: SourceNode = { kind: 'source', name, parents: [], ...selected(topics, name), keySerde: key, valueSerde: value };
    const twin = this.#twin(source);
    if (twin === undefined) this.#draft.add(source);
    else requireAgreement(twin, source, options.name);
    return new GraphStream(this.#draft, twin?.name ?? name, { key, value }) as unknown as KStream<unknown, unknown, 'known', 'known'>;
  }

  /**
   * Ends the building: checks the whole, cuts it into what runs separately, and freezes it. Called again, it returns the same topology.
   * Throws TopologyError where the topology does nothing, a stream is read and not used, or a split is not ended.
   *
   * ```ts run
   * flights.filter((flight) => flight.delay > 15).to('late-flights');
   * const topology = builder.build();
   * console.log(describe(topology));
   * ```
   */
  build(): Topology {
    if (this.#topology !== undefined) return this.#topology;
    this.#requireUse();
    const graph = this.#draft.graph();
    this.#topology = Object.freeze({ graph, ...cut(graph), fingerprint: fingerprint(graph) });
    this.#draft.freeze();
    return this.#topology;
  }

  /** The source that reads exactly the same already. Throws where one reads some of it. */
  #twin(source: SourceNode): SourceNode | undefined {
    for (const other of this.#draft.sources()) {
      if (sameSelection(other, source)) return other;
      const shared = overlap(other, source) ?? overlap(source, other);
      if (shared !== undefined) {
        throw new TopologyError(
          `the streams '${other.name}' and '${source.name}' overlap in topic '${shared}' without reading the same topics: ` +
            'read it once, and use the stream that stream() returned in both places',
        );
      }
    }
    return undefined;
  }

  #requireUse(): void {
    const used = new Set(this.#draft.nodes().flatMap((node) => node.parents));
    const sources = this.#draft.sources();
    const unused = sources.find((source) => !used.has(source.name));
    if (unused === undefined && sources.length > 0) return;
    throw new TopologyError(
      unused === undefined
        ? "the topology is empty: begin with builder.stream('topic')"
        : `the stream '${unused.name}' of ${unused.pattern ?? unused.topics.join(', ')} is read, but no step uses it: add a step, or remove it`,
    );
  }
}

/** What is read where no serde is given. */
const RAW = nullable(bytes());

function selected(topics: TopicSelection, name: string): Pick<SourceNode, 'topics' | 'pattern'> {
  const where = `stream '${name}'`;
  if (topics instanceof RegExp) {
    // The flags g and y make `test` depend on the call before.
    return { topics: [], pattern: new RegExp(topics.source, topics.flags.replaceAll(/[gy]/g, '')) };
  }
  const list = typeof topics === 'string' ? [topics] : topics;
  if (!Array.isArray(list) || list.length === 0) {
    throw new TopologyError(`${where} needs a topic, a list of topics with at least one, or a regular expression`);
  }
  for (const topic of list) requireTopicName(topic, where);
  return { topics: [...new Set<string>(list)] };
}

function sameSelection(a: SourceNode, b: SourceNode): boolean {
  if (a.pattern !== undefined || b.pattern !== undefined) return String(a.pattern) === String(b.pattern);
  return a.topics.length === b.topics.length && a.topics.every((topic) => b.topics.includes(topic));
}

/** A topic of `b` that `a` reads too, as far as it can be known before the topics of the cluster are. */
function overlap(a: SourceNode, b: SourceNode): string | undefined {
  return b.topics.find((topic) => a.topics.includes(topic) || a.pattern?.test(topic) === true);
}

function requireAgreement(first: SourceNode, second: SourceNode, givenName: string | undefined): void {
  const what = `${first.pattern ?? first.topics.join(', ')} is read twice`;
  if (first.keySerde !== second.keySerde || first.valueSerde !== second.valueSerde) {
    throw new TopologyError(
      `${what} with different serdes (in '${first.name}'): use the stream of the first call, or pass the same serde objects to both`,
    );
  }
  if (givenName !== undefined && givenName !== first.name) {
    throw new TopologyError(`${what}, as '${first.name}' and as '${givenName}': it is one source and has one name`);
  }
}

function requireSerde(serde: Serde<unknown>, source: string, part: 'key' | 'value'): Serde<unknown> {
  if (typeof serde.deserialise === 'function' && typeof serde.serialise === 'function') return serde;
  throw new TopologyError(`stream '${source}' was given a ${part} serde that is none: call it, as in { ${part}: string() }`);
}
