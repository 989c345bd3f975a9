/* oxlint-disable vitest/expect-expect -- the type checker is what judges these */
import { describe, expectTypeOf, it } from 'vitest';
import {
  bytes,
  insert,
  int64,
  json,
  type KStream,
  nullable,
  number,
  postgresSink,
  type Raw,
  type RecordContext,
  type Sink,
  StreamsBuilder,
  string,
} from '../../src/index.ts';

interface Flight {
  readonly origin: string;
  readonly delay: number;
}

type Event = { readonly kind: 'opened'; readonly by: string } | { readonly kind: 'closed'; readonly code: number };

const builder = new StreamsBuilder();
const flights = builder.stream('flights', { key: string(), value: json<Flight>() });
const events = builder.stream('events', { key: string(), value: json<Event>() });

describe('stream', () => {
  it('takes its types from the serdes', () => {
    expectTypeOf(flights).toEqualTypeOf<KStream<string, Flight, 'known', 'known'>>();
    expectTypeOf(builder.stream('raw')).toEqualTypeOf<KStream<Raw, Raw, 'known', 'known'>>();
    expectTypeOf(builder.stream(['a', 'b'], { key: string() })).toEqualTypeOf<KStream<string, Raw, 'known', 'known'>>();
    expectTypeOf(builder.stream(/^a/, { value: int64(), name: 'a' })).toEqualTypeOf<KStream<Raw, bigint, 'known', 'known'>>();
  });

  it('refuses types that no serde stands for', () => {
    // @ts-expect-error the value's type is claimed, without a serde
    builder.stream<string, Flight>('flights');
    // @ts-expect-error the serde reads strings
    builder.stream<string, Flight>('flights', { key: string(), value: string() });
    // @ts-expect-error a function that makes a serde is none
    builder.stream('flights', { value: string });
    // @ts-expect-error a number is no topic
    builder.stream(7);
    // @ts-expect-error no such option
    builder.stream('flights', { keySerde: string() });
    // @ts-expect-error nor here
    builder.stream('flights', { key: string(), value: string(), parallelism: 3 });
  });

  it('has no way to be made without a builder', () => {
    // @ts-expect-error KStream is a type only
    void new KStream();
  });

  it('does not pass for a stream of other types', () => {
    expectTypeOf(flights).toExtend<KStream<string, Flight>>();
    expectTypeOf(flights).toExtend<KStream<string | null, Flight | null>>();
    // @ts-expect-error values are flights
    const wrongValue: KStream<string, number> = flights;
    // @ts-expect-error keys are strings
    const wrongKey: KStream<number, Flight> = flights;
    const unclear: KStream<string, Flight> = flights;
    // @ts-expect-error its serdes may be unknown
    const known: KStream<string, Flight, 'known', 'known'> = unclear;
    void [wrongValue, wrongKey, known];
  });
});

describe('callbacks', () => {
  it('take value, key and context', () => {
    flights.peek((...given) => {
      expectTypeOf(given).toEqualTypeOf<[value: Flight, key: string, context: RecordContext]>();
    });
    // @ts-expect-error the value comes first
    flights.filter((key: string, value: Flight) => key === value.origin);
  });
});

describe('filter and filterNot', () => {
  it('keep the types', () => {
    expectTypeOf(flights.filter((flight) => flight.delay > 15)).toEqualTypeOf<KStream<string, Flight, 'known', 'known'>>();
    expectTypeOf(flights.filterNot((flight) => flight.delay > 15, { name: 'x' })).toEqualTypeOf<
      KStream<string, Flight, 'known', 'known'>
    >();
  });

  it('narrow with a type guard', () => {
    const notes = builder.stream('notes', { value: nullable(string()) });
    expectTypeOf(notes.filter((note) => note !== null)).toEqualTypeOf<KStream<Raw, string, 'known', 'known'>>();
    expectTypeOf(notes.filterNot((note) => note === null)).toEqualTypeOf<KStream<Raw, string, 'known', 'known'>>();
    expectTypeOf(events.filterNot((event) => event.kind === 'opened')).toExtend<KStream<string, { kind: 'closed'; code: number }>>();
  });

  it('refuse what is no predicate', () => {
    // @ts-expect-error a promise is always true
    flights.filter(async (flight) => flight.delay > 15);
    // @ts-expect-error likewise
    flights.filterNot(async (flight) => flight.delay > 15);
    // @ts-expect-error a number is no answer
    flights.filter((flight) => flight.delay);
    // @ts-expect-error no such member
    flights.filter((flight) => flight.speed > 1);
    // @ts-expect-error no predicate
    flights.filter();
    // @ts-expect-error no such member
    flights.filterNot((flight) => flight.speed > 1);
    // @ts-expect-error no such option
    flights.filter(() => true, { nmae: 'x' });
  });
});

describe('map and flatMap', () => {
  it('take both types from the results', () => {
    expectTypeOf(flights.map((flight) => [flight.origin.length, flight.delay > 0])).toEqualTypeOf<
      KStream<number, boolean, 'unknown', 'unknown'>
    >();
    expectTypeOf(flights.flatMap((flight) => [[flight.origin, 1n]])).toEqualTypeOf<KStream<string, bigint, 'unknown', 'unknown'>>();
    expectTypeOf(
      flights.flatMap(function* (flight) {
        yield [flight.origin, flight.delay] as const;
      }),
    ).toEqualTypeOf<KStream<string, number, 'unknown', 'unknown'>>();
    expectTypeOf(flights.flatMap(() => [])).toExtend<KStream<unknown, unknown>>();
  });

  it('refuse what is no pair', () => {
    // @ts-expect-error the value alone
    flights.map((flight) => flight.delay);
    // @ts-expect-error an object
    flights.map((flight) => ({ key: flight.origin, value: flight.delay }));
    // @ts-expect-error three members
    flights.map((flight) => [flight.origin, flight.delay, 1]);
    // @ts-expect-error a promise
    flights.map(async (flight) => [flight.origin, flight.delay]);
    // @ts-expect-error one pair instead of a list of pairs
    flights.flatMap((flight) => [flight.origin, flight.delay]);
    // @ts-expect-error a promise
    flights.flatMap(async (flight) => [[flight.origin, flight.delay]]);
    flights.flatMap(
      // @ts-expect-error an asynchronous iterable
      async function* (flight) {
        yield [flight.origin, flight.delay];
      },
    );
  });
});

describe('mapValues and flatMapValues', () => {
  it('take the value type from the result and keep the key', () => {
    expectTypeOf(flights.mapValues((flight) => flight.delay)).toEqualTypeOf<KStream<string, number, 'known', 'unknown'>>();
    expectTypeOf(flights.mapValues((flight) => ({ ...flight, late: true }))).toEqualTypeOf<
      KStream<string, { late: boolean; origin: string; delay: number }, 'known', 'unknown'>
    >();
    expectTypeOf(flights.flatMapValues((flight) => [flight.delay])).toEqualTypeOf<KStream<string, number, 'known', 'unknown'>>();
    expectTypeOf(flights.flatMapValues((flight) => new Set([flight.origin]))).toEqualTypeOf<KStream<string, string, 'known', 'unknown'>>();
  });

  it('carry the new type on', () => {
    // @ts-expect-error the value is a number now
    flights.mapValues((flight) => flight.delay).filter((flight) => flight.delay > 1);
    // @ts-expect-error likewise
    flights.flatMapValues((flight) => [flight.delay]).filter((delay) => delay.length > 1);
  });

  it('refuse promises and what cannot be iterated', () => {
    // @ts-expect-error a promise
    flights.mapValues(async (flight) => flight.delay);
    // @ts-expect-error a promise without the word async
    flights.mapValues((flight) => Promise.resolve(flight.delay));
    // @ts-expect-error a number is no list
    flights.flatMapValues((flight) => flight.delay);
    // @ts-expect-error a promise is none either
    flights.flatMapValues(async (flight) => [flight.delay]);
  });
});

describe('selectKey', () => {
  it('replaces the key type', () => {
    expectTypeOf(flights.selectKey((flight) => flight.delay)).toEqualTypeOf<KStream<number, Flight, 'unknown', 'known'>>();
    // @ts-expect-error a promise
    flights.selectKey(async (flight) => flight.origin);
    // @ts-expect-error no such member
    flights.selectKey((flight) => flight.tail);
  });
});

describe('peek and foreach', () => {
  it('keep the types, or end', () => {
    expectTypeOf(flights.peek(() => {})).toEqualTypeOf<KStream<string, Flight, 'known', 'known'>>();
    expectTypeOf(flights.peek((flight) => flight.delay)).toEqualTypeOf<KStream<string, Flight, 'known', 'known'>>();
    expectTypeOf(flights.foreach(() => {})).toEqualTypeOf<void>();
  });

  it('refuse promises, which void alone would let through', () => {
    // @ts-expect-error a promise
    flights.peek(async () => {});
    // @ts-expect-error a promise
    flights.foreach(async (flight) => console.log(flight));
    // @ts-expect-error nothing follows
    flights.foreach(() => {}).to('x');
  });
});

describe('split', () => {
  it('gives a stream for each name', () => {
    const branches = flights
      .split({ name: 'by-delay' })
      .branch('early', (flight) => flight.delay < 0)
      .branch('late', (flight) => flight.delay > 15)
      .defaultBranch('rest');
    expectTypeOf(branches.late).toEqualTypeOf<KStream<string, Flight, 'known', 'known'>>();
    expectTypeOf(branches.rest).toEqualTypeOf<KStream<string, Flight, 'known', 'known'>>();
    expectTypeOf<keyof typeof branches>().toEqualTypeOf<'early' | 'late' | 'rest'>();
    // @ts-expect-error no branch has this name
    void branches.cancelled;
  });

  it('narrows with type guards, and what is left with them', () => {
    const { opened, rest } = events
      .split()
      .branch('opened', (event) => event.kind === 'opened')
      .defaultBranch('rest');
    opened.mapValues((event) => event.by);
    rest.mapValues((event) => event.code);
    // @ts-expect-error it is opened
    opened.mapValues((event) => event.code);
    // @ts-expect-error it is not opened
    rest.mapValues((event) => event.by);
  });

  it('has no rest without a default branch', () => {
    const branches = flights
      .split()
      .branch('late', (flight) => flight.delay > 15)
      .noDefaultBranch();
    expectTypeOf<keyof typeof branches>().toEqualTypeOf<'late'>();
  });

  it('refuses branches that are none', () => {
    // @ts-expect-error no predicate
    flights.split().branch('late');
    // @ts-expect-error no name
    flights.split().branch((flight: Flight) => flight.delay > 15);
    // @ts-expect-error a promise
    flights.split().branch('late', async (flight) => flight.delay > 15);
    // @ts-expect-error a split is no stream before it is ended
    flights.split().to('x');
    const ended = flights.split().defaultBranch('rest');
    // @ts-expect-error nothing follows the default branch
    ended.branch('late', () => true);
  });
});

describe('merge', () => {
  it('unites the types and drops the serdes', () => {
    expectTypeOf(flights.merge(events)).toEqualTypeOf<KStream<string, Flight | Event, 'unknown', 'unknown'>>();
    // @ts-expect-error which of both it is must be asked first
    flights.merge(events).mapValues((value) => value.delay);
    // @ts-expect-error a topic is no stream
    flights.merge('events');
    // @ts-expect-error the serdes may differ
    flights.merge(events).to('all');
  });
});

describe('to', () => {
  it('needs no serde where the type is what was read', () => {
    flights.to('copy');
    flights.filter((flight) => flight.delay > 0).to('copy', { name: 'copy' });
    flights.peek(() => {}).to((flight, key, { partition }) => `${flight.origin}-${key}-${partition}`);
  });

  it('needs the serde of what has changed', () => {
    flights.mapValues((flight) => flight.delay).to('delays', { value: number() });
    flights.selectKey((flight) => flight.delay).to('by-delay', { key: number() });
    flights.map((flight) => [flight.origin, flight.delay]).to('delays', { key: string(), value: number() });
    // @ts-expect-error the value has changed
    flights.mapValues((flight) => flight.delay).to('delays');
    // @ts-expect-error the value has changed, this is the key's
    flights.mapValues((flight) => flight.delay).to('delays', { key: string() });
    // @ts-expect-error the key has changed
    flights.selectKey((flight) => flight.delay).to('by-delay');
    // @ts-expect-error both have changed
    flights.map((flight) => [flight.origin, flight.delay]).to('delays', { value: number() });
    // @ts-expect-error likewise
    flights.flatMap((flight) => [[flight.origin, flight.delay]]).to('delays', { key: string() });
    // @ts-expect-error the value has changed
    flights.flatMapValues((flight) => [flight.delay]).to('delays');
    // @ts-expect-error nothing is known of the serdes of this stream
    (flights as KStream<string, Flight>).to('copy');
    // @ts-expect-error undefined is no serde
    flights.mapValues((flight) => flight.delay).to('delays', { value: undefined });
  });

  it('refuses a serde of another type', () => {
    // @ts-expect-error strings for numbers
    flights.mapValues((flight) => flight.delay).to('delays', { value: string() });
    // @ts-expect-error bigints for numbers
    flights.mapValues((flight) => flight.delay).to('delays', { value: int64() });
    // @ts-expect-error bytes for flights
    flights.to('copy', { value: bytes() });
    // @ts-expect-error numbers for string keys
    flights.to('copy', { key: number() });
    // @ts-expect-error the JSON of something else
    flights.to('copy', { value: json<{ speed: number }>() });
  });

  it('refuses a serde that cannot write null where null may come', () => {
    const maybe = flights.mapValues((flight) => (flight.delay > 0 ? flight : null));
    maybe.to('copy', { value: nullable(json<Flight>()) });
    // @ts-expect-error null may come
    maybe.to('copy', { value: json<Flight>() });
  });

  it('takes a serde that can write more than what comes', () => {
    flights.to('copy', { key: nullable(string()), value: json<object>() });
    flights.mapValues((flight) => flight.delay).to('delays', { value: json() });
  });

  it('types its functions', () => {
    flights.to('copy', {
      partitioner: (flight, key, partitionCount) => (flight.delay + key.length) % partitionCount,
      headers: (flight, key, { headers }) => [...headers, { key: 'origin', value: Buffer.from(flight.origin + key) }],
    });
    flights.to('copy', { headers: (flight) => ({ origin: flight.origin, raw: new Uint8Array(1), none: null }) });
    // @ts-expect-error a partition is a number
    flights.to('copy', { partitioner: (flight) => flight.origin });
    // @ts-expect-error a header is text or bytes
    flights.to('copy', { headers: (flight) => ({ delay: flight.delay }) });
    // @ts-expect-error a promise
    flights.to('copy', { headers: async () => [] });
    // @ts-expect-error a topic is a string
    flights.to((flight) => flight.delay);
    // @ts-expect-error a promise is no topic
    flights.to(async (flight) => flight.origin);
    // @ts-expect-error no such option
    flights.to('copy', { partition: 3 });
    // @ts-expect-error nothing follows
    flights.to('copy').to('again');
  });
});

describe('sink', () => {
  it('takes a sink for the types of the stream, or wider ones', () => {
    flights.sink({} as Sink<string, Flight>, { name: 'flights-table' });
    flights.sink({} as Sink<unknown, unknown>);
    // @ts-expect-error a sink for numbers
    flights.sink({} as Sink<string, number>);
    // @ts-expect-error a sink that cannot take null
    flights.mapValues((flight) => (flight.delay > 0 ? flight : null)).sink({} as Sink<string, Flight>);
    // @ts-expect-error a topic is no sink
    flights.sink('topic');
  });

  it('gives a Postgres mapping the types of the stream', () => {
    flights.sink(postgresSink({ connection: '', effect: insert({ table: 'flights', columns: { origin: 'origin' } }) }));
    flights.sink(postgresSink({ connection: '', effect: async (tx, records) => void (await tx.query(records[0]?.value.origin ?? '')) }));
    // @ts-expect-error flights have no speed
    flights.sink(postgresSink({ connection: '', effect: insert({ table: 'flights', columns: { speed: 'speed' } }) }));
    // @ts-expect-error likewise
    flights.sink(postgresSink({ connection: '', effect: async (tx, records) => void (await tx.query(records[0]?.value.speed)) }));
  });
});
