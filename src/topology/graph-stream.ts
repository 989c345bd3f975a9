import { TopologyError } from '../model/errors.ts';
import { type Branch, branch } from '../operators/branch.ts';
import { filter } from '../operators/filter.ts';
import { flatMap } from '../operators/flat-map.ts';
import { flatMapValues } from '../operators/flat-map-values.ts';
import { map } from '../operators/map.ts';
import { mapValues } from '../operators/map-values.ts';
import { passThrough } from '../operators/pass-through.ts';
import { foreach, peek } from '../operators/peek.ts';
import { selectKey } from '../operators/select-key.ts';
import type { Operator } from '../operators/step.ts';
import { to } from '../operators/to.ts';
import type { UserFunction } from '../operators/user-function.ts';
import type { Serde, Serialiser } from '../serde/serde.ts';
import type { Sink } from '../sink/port.ts';
import { BRANCH_OUTLET } from './cut.ts';
import type { GraphDraft } from './graph-draft.ts';
import type { BranchedKStream, KStream } from './kstream.ts';
import { requireTopicName } from './names.ts';
import { requireStepFunction } from './step-function.ts';
import type { StepOptions, ToOptions } from './stream-options.ts';

/** The serdes that a stream still has. */
export interface KnownSerdes {
  readonly key: Serde<unknown> | undefined;
  readonly value: Serde<unknown> | undefined;
}

type Erased = Record<keyof KStream<unknown, unknown>, (...given: never[]) => unknown>;

/**
 * A KStream as a place in a graph that is being written. Types are erased here: what may be given is checked by the interface, and for
 * JavaScript by the few checks below.
 */
export class GraphStream implements Erased {
  readonly #draft: GraphDraft;
  readonly #node: string;
  readonly #serdes: KnownSerdes;

  constructor(draft: GraphDraft, node: string, serdes: KnownSerdes) {
    this.#draft = draft;
    this.#node = node;
    this.#serdes = serdes;
  }

  filter(predicate: UserFunction<boolean>, options?: StepOptions): GraphStream {
    return this.#step('KSTREAM-FILTER-', 'filter', predicate, options, (node) => filter(node, predicate, true), this.#serdes);
  }

  filterNot(predicate: UserFunction<boolean>, options?: StepOptions): GraphStream {
    return this.#step('KSTREAM-FILTER-', 'filterNot', predicate, options, (node) => filter(node, predicate, false), this.#serdes);
  }

  map(mapper: UserFunction<readonly [unknown, unknown]>, options?: StepOptions): GraphStream {
    return this.#step('KSTREAM-MAP-', 'map', mapper, options, (node) => map(node, mapper), NO_SERDES);
  }

  mapValues(mapper: UserFunction<unknown>, options?: StepOptions): GraphStream {
    return this.#step('KSTREAM-MAPVALUES-', 'mapValues', mapper, options, (node) => mapValues(node, mapper), this.#keySerde());
  }

  flatMap(mapper: UserFunction<Iterable<readonly [unknown, unknown]>>, options?: StepOptions): GraphStream {
    return this.#step('KSTREAM-FLATMAP-', 'flatMap', mapper, options, (node) => flatMap(node, mapper), NO_SERDES);
  }

  flatMapValues(mapper: UserFunction<Iterable<unknown>>, options?: StepOptions): GraphStream {
    return this.#step('KSTREAM-FLATMAPVALUES-', 'flatMapValues', mapper, options, (node) => flatMapValues(node, mapper), this.#keySerde());
  }

  selectKey(selector: UserFunction<unknown>, options?: StepOptions): GraphStream {
    const serdes = { key: undefined, value: this.#serdes.value };
    return this.#step('KSTREAM-KEY-SELECT-', 'selectKey', selector, options, (node) => selectKey(node, selector), serdes);
  }

  peek(action: UserFunction<unknown>, options?: StepOptions): GraphStream {
    return this.#step('KSTREAM-PEEK-', 'peek', action, options, (node) => peek(node, action), this.#serdes);
  }

  foreach(action: UserFunction<unknown>, options?: StepOptions): void {
    this.#step('KSTREAM-FOREACH-', 'foreach', action, options, (node) => foreach(node, action), this.#serdes);
  }

  split(options?: StepOptions): GraphBranches {
    const branches: Branch[] = [];
    const name = this.#draft.name('KSTREAM-BRANCH-', options?.name);
    this.#draft.add({ kind: 'processor', name, parents: [this.#node], operation: 'split', operator: branch(name, branches) });
    return new GraphBranches(this.#draft, name, this.#serdes, branches);
  }

  merge(other: GraphStream, options?: StepOptions): GraphStream {
    const name = this.#draft.name('KSTREAM-MERGE-', options?.name);
    if (!(other instanceof GraphStream)) throw new TopologyError(`step '${name}' needs a stream to merge with`);
    if (other.#draft !== this.#draft) {
      throw new TopologyError(`step '${name}' merges streams of two builders: make both with the same StreamsBuilder`);
    }
    if (other.#node === this.#node)
      throw new TopologyError(`step '${name}' merges the stream with itself, which would double every record`);
    this.#draft.add({ kind: 'processor', name, parents: [this.#node, other.#node], operation: 'merge', operator: passThrough });
    return new GraphStream(this.#draft, name, NO_SERDES);
  }

  to(topic: string | UserFunction<string>, options: ToOptions<unknown, unknown> = {}): void {
    const name = this.#draft.name('KSTREAM-SINK-', options.name);
    const { partitioner, headers } = options;
    if (typeof topic === 'function') requireStepFunction(name, topic);
    else requireTopicName(topic, `step '${name}'`);
    if (partitioner !== undefined) requireStepFunction(name, partitioner);
    if (headers !== undefined) requireStepFunction(name, headers);
    const key = requireSerialiser(name, 'key', options.key ?? this.#serdes.key);
    const value = requireSerialiser(name, 'value', options.value ?? this.#serdes.value);
    const operator = to({ node: name, topic, key, value, partitioner, headers });
    this.#draft.add({ kind: 'topic-sink', name, parents: [this.#node], topic: typeof topic === 'string' ? topic : undefined, operator });
  }

  sink(sink: Sink<unknown, unknown>, options?: StepOptions): void {
    this.#draft.requireOpen();
    if (typeof (sink as Partial<Sink<unknown, unknown>> | undefined)?.open !== 'function') {
      throw new TopologyError(`the stream behind '${this.#node}' was given something else than a sink (such as postgresSink(...))`);
    }
    const generated = `${sink.kind}-${this.#topics()}`;
    if (options?.name === undefined && this.#draft.node(generated) !== undefined) {
      throw new TopologyError(
        `a second sink would have the name '${generated}': give it a { name } of its own, under which its progress is kept`,
      );
    }
    const name = this.#draft.name('KSTREAM-SINK-', options?.name ?? generated);
    this.#draft.add({ kind: 'external-sink', name, parents: [this.#node], sink });
  }

  #keySerde(): KnownSerdes {
    return { key: this.#serdes.key, value: undefined };
  }

  /** The topics that this stream is read from, as they can stand in a name. */
  #topics(): string {
    const topics: string[] = [];
    const seen = new Set<string>();
    const pending = [this.#node];
    for (let name = pending.shift(); name !== undefined; name = pending.shift()) {
      const node = this.#draft.node(name);
      if (node === undefined || seen.has(name)) continue;
      seen.add(name);
      if (node.kind === 'source')
        topics.push(...node.topics, ...(node.pattern ? [node.pattern.source.replaceAll(/[^a-zA-Z0-9._-]+/g, '_')] : []));
      pending.push(...node.parents);
    }
    return topics.join('-');
  }

  #step(
    prefix: string,
    operation: string,
    given: unknown,
    options: StepOptions | undefined,
    operator: (node: string) => Operator,
    serdes: KnownSerdes,
  ): GraphStream {
    const name = this.#draft.name(prefix, options?.name);
    requireStepFunction(name, given);
    this.#draft.add({ kind: 'processor', name, parents: [this.#node], operation, operator: operator(name) });
    return new GraphStream(this.#draft, name, serdes);
  }
}

const NO_SERDES: KnownSerdes = { key: undefined, value: undefined };

function requireSerialiser(node: string, part: 'key' | 'value', serialiser: Serialiser<unknown> | undefined): Serialiser<unknown> {
  if (serialiser === undefined) {
    throw new TopologyError(
      `step '${node}' needs { ${part}: ... }: a step before it has changed the ${part}, so its serde is not known any more`,
    );
  }
  if (typeof serialiser.serialise !== 'function') {
    throw new TopologyError(`step '${node}' was given a ${part} serde that is none: call it, as in { ${part}: string() }`);
  }
  return serialiser;
}

/** A split as it is being written. Each branch has an outlet of its own in the graph, for its name and for the steps behind it. */
class GraphBranches implements Record<keyof BranchedKStream<unknown, unknown, never, never>, (...given: never[]) => unknown> {
  readonly #draft: GraphDraft;
  readonly #node: string;
  readonly #serdes: KnownSerdes;
  readonly #branches: Branch[];
  readonly #streams: Record<string, GraphStream> = {};
  #ended = false;

  constructor(draft: GraphDraft, node: string, serdes: KnownSerdes, branches: Branch[]) {
    this.#draft = draft;
    this.#node = node;
    this.#serdes = serdes;
    this.#branches = branches;
    draft.begin(node, `the split '${node}' is not ended: call defaultBranch('...') or noDefaultBranch() after its last branch`);
  }

  branch(name: string, predicate: UserFunction<boolean>): this {
    if (predicate === undefined) {
      throw new TopologyError(`branch '${name}' of '${this.#node}' has no predicate: for all other records, use defaultBranch('${name}')`);
    }
    requireStepFunction(`${this.#node}-${name}`, predicate);
    this.#add(name, predicate);
    return this;
  }

  defaultBranch(name: string): object {
    this.#add(name, undefined);
    return this.#end();
  }

  noDefaultBranch(): object {
    if (this.#branches.length === 0) throw new TopologyError(`the split '${this.#node}' has no branch`);
    return this.#end();
  }

  #add(name: string, predicate: UserFunction<boolean> | undefined): void {
    if (this.#ended) throw new TopologyError(`the split '${this.#node}' is ended and takes no more branches`);
    const outlet = `${this.#node}-${name}`;
    this.#draft.name('KSTREAM-BRANCH-', outlet);
    this.#draft.add({ kind: 'processor', name: outlet, parents: [this.#node], operation: BRANCH_OUTLET, operator: passThrough });
    this.#branches.push({ outlet, predicate });
    this.#streams[name] = new GraphStream(this.#draft, outlet, this.#serdes);
  }

  #end(): object {
    this.#draft.requireOpen();
    this.#ended = true;
    this.#draft.finish(this.#node);
    return this.#streams;
  }
}
