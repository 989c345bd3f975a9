import type { RecordContext } from '../model/record.ts';
import type { Sink } from '../sink/port.ts';
import type { Mapper, Predicate, SerdeState, StepOptions, Sync, ToArguments } from './stream-options.ts';

/**
 * Records as independent events, with keys of type `K` and values of type `V`. Each method adds a step and returns the stream behind it; nothing
 * runs before the topology is given to an `Application`.
 *
 * The words are those of Kafka Streams. Callbacks take the value first, then the key, then the record's context (topic, partition, offset,
 * timestamp, headers), so that `(value) => ...` is enough for most. They are synchronous: one that returns a promise does not compile, and is an
 * error when it runs. What a callback throws is a `ProcessingError` that names the step; what happens to the record is the application's choice.
 * Timestamp and headers of the input record travel on to every output.
 *
 * `KS` and `VS` say whether the serdes that the stream was read with still fit. Where a function takes a stream, `KStream<K, V>` is enough.
 *
 * ```ts run
 * const late = builder
 *   .stream('flights', { key: string(), value: json<Flight>() })
 *   .filter((flight) => flight.delay > 15);
 * late.to('late-flights');
 * ```
 */
export interface KStream<out K, out V, out KS extends SerdeState = SerdeState, out VS extends SerdeState = SerdeState> {
  /**
   * Keeps the records for which the predicate is true. A predicate that narrows the type (`value is X`) narrows the stream.
   *
   * ```ts run
   * flights.filter((flight) => flight.delay > 15, { name: 'only-late' });
   * builder
   *   .stream('notes', { key: string(), value: nullable(string()) })
   *   .filter((note) => note !== null)
   *   .mapValues((note) => note.length);
   * ```
   */
  filter<W extends V>(predicate: (value: V, key: K, context: RecordContext) => value is W, options?: StepOptions): KStream<K, W, KS, VS>;
  filter(predicate: Predicate<K, V>, options?: StepOptions): KStream<K, V, KS, VS>;

  /**
   * Drops the records for which the predicate is true.
   *
   * ```ts run
   * flights.filterNot((flight) => flight.origin === flight.destination);
   * ```
   */
  filterNot<W extends V>(
    predicate: (value: V, key: K, context: RecordContext) => value is W,
    options?: StepOptions,
  ): KStream<K, Exclude<V, W>, KS, VS>;
  filterNot(predicate: Predicate<K, V>, options?: StepOptions): KStream<K, V, KS, VS>;

  /**
   * Replaces key and value: the mapper returns `[key, value]`. Where the key stays, `mapValues` is better, since it does not move records to other
   * partitions later.
   *
   * ```ts run
   * flights.map((flight) => [flight.origin, flight.delay]).to('delays', { key: string(), value: number() });
   * ```
   */
  map<K2, V2>(mapper: Mapper<K, V, readonly [K2, V2]>, options?: StepOptions): KStream<K2, V2, 'unknown', 'unknown'>;

  /**
   * Replaces the value.
   *
   * ```ts run
   * flights.mapValues((flight) => ({ ...flight, late: flight.delay > 15 })).to('rated-flights', { value: json() });
   * ```
   */
  mapValues<V2>(mapper: Mapper<K, V, Sync<V2>>, options?: StepOptions): KStream<K, V2, KS, 'unknown'>;

  /**
   * Replaces a record by any number of records: the mapper returns an iterable of `[key, value]`. If the record has an `idempotency-key` header,
   * the second and further results get `<key>/1`, `<key>/2`..., so that nobody takes them for repetitions of the first.
   *
   * ```ts run
   * flights
   *   .flatMap((flight) => [
   *     [flight.origin, 1],
   *     [flight.destination, 1],
   *   ])
   *   .to('visits', { key: string(), value: number() });
   * ```
   */
  flatMap<K2, V2>(mapper: Mapper<K, V, Iterable<readonly [K2, V2]>>, options?: StepOptions): KStream<K2, V2, 'unknown', 'unknown'>;

  /**
   * Replaces a record by any number of records with the same key. Idempotency keys as with `flatMap`.
   *
   * ```ts run
   * builder
   *   .stream('lines', { key: nullable(string()), value: string() })
   *   .flatMapValues((line) => line.split(' '))
   *   .to('words', { value: string() });
   * ```
   */
  flatMapValues<V2>(mapper: Mapper<K, V, Iterable<V2>>, options?: StepOptions): KStream<K, V2, KS, 'unknown'>;

  /**
   * Replaces the key.
   *
   * ```ts run
   * flights.selectKey((flight) => flight.destination).to('flights-by-destination', { key: string() });
   * ```
   */
  selectKey<K2>(selector: Mapper<K, V, Sync<K2>>, options?: StepOptions): KStream<K2, V, 'unknown', VS>;

  /**
   * Calls a function for its side effect, and passes the record on. The effect is outside of every guarantee: it is there again when a transaction is
   * aborted and its records are processed anew. For effects that must happen once, use `sink`.
   *
   * ```ts run
   * flights.peek((flight, key, { offset }) => console.log(`${offset}: ${key} is ${flight.delay} minutes late`)).to('seen');
   * ```
   */
  peek<R>(action: Mapper<K, V, Sync<R>>, options?: StepOptions): KStream<K, V, KS, VS>;

  /**
   * Calls a function for its side effect, and ends the stream. As with `peek`, the effect is outside of every guarantee.
   *
   * ```ts run
   * flights.foreach((flight) => console.log(flight.origin));
   * ```
   */
  foreach<R>(action: Mapper<K, V, Sync<R>>, options?: StepOptions): void;

  /**
   * Divides the stream into branches by name: each record goes to the first branch whose predicate is true, in the order in which they are given.
   *
   * ```ts run
   * const { early, late, rest } = flights
   *   .split()
   *   .branch('early', (flight) => flight.delay < 0)
   *   .branch('late', (flight) => flight.delay > 15)
   *   .defaultBranch('rest');
   * late.to('late-flights');
   * early.merge(rest).to('other-flights', { key: string(), value: json() });
   * ```
   */
  split(options?: StepOptions): BranchedKStream<K, V, KS, VS>;

  /**
   * Both streams as one, in no particular order between them. As in Kafka Streams the serdes are dropped, since the streams may have different ones.
   *
   * ```ts run
   * const archive = builder.stream('archived-flights', { key: string(), value: json<Flight>() });
   * flights.merge(archive).to('all-flights', { key: string(), value: json() });
   * ```
   */
  merge<K2, V2>(other: KStream<K2, V2>, options?: StepOptions): KStream<K | K2, V | V2, 'unknown', 'unknown'>;

  /**
   * Writes to a topic, or to the topic that a function chooses for each record. Under `exactly-once` it becomes visible together with the
   * progress of the input, or not at all. Throws a TopologyError if a serde is missing (which does not compile in the first place) or Kafka does
   * not allow the topic's name. At run time, what a serde refuses is a `SerialisationError` that names step and topic.
   *
   * ```ts run
   * flights.to('copy');
   * flights.to((flight) => `flights-from-${flight.origin}`, {
   *   name: 'by-origin',
   *   partitioner: (flight, key, partitionCount) => (flight.distance + key.length) % partitionCount,
   *   headers: (flight) => ({ carrier: flight.carrier }),
   * });
   * ```
   */
  to(topic: string | Mapper<K, V, string>, ...options: ToArguments<K, V, KS, VS>): void;

  /**
   * Lets the records leave Kafka. The sink is a stage of its own, with its own consumer group (`<application id>-<name>`): it reads committed
   * records only, and runs the stateless steps between source and sink again by itself. What is guaranteed there, `describe` says.
   *
   * `name` is the name of the stage, under which its progress is kept: keep it. Default: the sink's kind and the topics, such as
   * `postgres-flights`; where that is taken already, a name must be given.
   *
   * ```ts run
   * const connection = 'postgres://app@127.0.0.1/flights';
   * const columns = { origin: 'origin', minutes: (flight: Flight) => flight.delay } as const;
   * flights.sink(postgresSink({ connection, effect: insert({ table: 'flights', columns }) }), { name: 'flights-table' });
   * ```
   */
  sink(sink: Sink<K, V>, options?: StepOptions): void;
}

/**
 * A stream that is being divided; made by `split`, ended by `defaultBranch` or `noDefaultBranch`, which give an object with a stream for each name.
 * `V` is what no branch so far has taken.
 */
export interface BranchedKStream<K, V, KS extends SerdeState, VS extends SerdeState, Branches = object> {
  /**
   * Takes the records for which the predicate is true and that no branch before has taken. A predicate that narrows the type narrows the branch,
   * and what is left for those after it.
   *
   * ```ts run
   * const { late } = flights.split({ name: 'by-delay' }).branch('late', (flight) => flight.delay > 15).noDefaultBranch();
   * late.to('late-flights');
   * ```
   */
  branch<Name extends string, W extends V>(
    name: Name,
    predicate: (value: V, key: K, context: RecordContext) => value is W,
  ): BranchedKStream<K, Exclude<V, W>, KS, VS, Branches & Record<Name, KStream<K, W, KS, VS>>>;
  branch<Name extends string>(
    name: Name,
    predicate: Predicate<K, V>,
  ): BranchedKStream<K, V, KS, VS, Branches & Record<Name, KStream<K, V, KS, VS>>>;

  /**
   * Ends the split with a branch for all other records.
   *
   * ```ts run
   * const { late, rest } = flights.split().branch('late', (flight) => flight.delay > 15).defaultBranch('rest');
   * late.to('late-flights');
   * rest.to('other-flights');
   * ```
   */
  defaultBranch<Name extends string>(name: Name): Flat<Branches & Record<Name, KStream<K, V, KS, VS>>>;

  /**
   * Ends the split; records that no branch has taken are dropped.
   *
   * ```ts run
   * const { late } = flights.split().branch('late', (flight) => flight.delay > 15).noDefaultBranch();
   * late.to('late-flights');
   * ```
   */
  noDefaultBranch(): Flat<Branches>;
}

/** Shows an intersection of objects as one object. */
type Flat<T> = { [P in keyof T]: T[P] };
