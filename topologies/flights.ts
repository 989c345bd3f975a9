/**
 * Flights: checks and enriches each, routes the delayed ones to a topic of their own, and keeps all of them in a Postgres table.
 *
 *   flights --> [parse, enrich] --> flights-enriched --> Postgres: flights
 *                             \--> flights-delayed
 *
 * A line that is no flight cannot be deserialised: run it with `onDeserialisationError: 'dead-letter'`.
 */
import { insert, json, postgresSink, type SinkMode, StreamsBuilder, string, type Topology } from '../src/index.ts';

export interface Flight {
  readonly id: string;
  /** `2001/01/01 00:47`, taken as UTC. */
  readonly date: string;
  /** Minutes; negative when early. */
  readonly delay: number;
  /** Miles. */
  readonly distance: number;
  readonly origin: string;
  readonly destination: string;
}

export interface EnrichedFlight extends Flight {
  readonly route: string;
  readonly departed: string;
  readonly hour: number;
  readonly delayed: boolean;
}

/** As the airlines' statistics count: a flight is delayed from 15 minutes on. */
export const DELAYED_FROM_MINUTES = 15;

export interface FlightsOptions {
  /** Before the names of all topics. */
  readonly prefix?: string;
  /** Postgres connection string. Default: DATABASE_URL, else a local server. */
  readonly database?: string;
  /** The schema of the table `flights`. Default `public`. */
  readonly schema?: string;
  readonly mode?: SinkMode;
  /** Called for each flight: stands for the work that enriching it takes. */
  readonly work?: () => void;
}

/** The table that the sink fills. It has no unique constraint on purpose: nothing but the sink keeps it free of duplicates. */
export function flightsTable(schema: string): string {
  return `CREATE TABLE "${schema}".flights
    (id text NOT NULL, departed timestamptz NOT NULL, hour int NOT NULL, origin text NOT NULL, destination text NOT NULL, route text NOT NULL,
     delay int NOT NULL, distance int NOT NULL, delayed boolean NOT NULL)`;
}

export function flightsTopology(options: FlightsOptions = {}): Topology {
  const {
    prefix = '',
    database = process.env['DATABASE_URL'] ?? 'postgres://127.0.0.1/postgres',
    schema = 'public',
    mode = 'exactly-once',
    work,
  } = options;
  const builder = new StreamsBuilder();

  const enriched = builder.stream(`${prefix}flights`, { key: string(), value: json<Flight>({ validate: parseFlight }) }).mapValues(
    (flight) => {
      work?.();
      return enrich(flight);
    },
    { name: 'enrich' },
  );
  enriched.to(`${prefix}flights-enriched`, { value: json<EnrichedFlight>() });
  enriched.filter((flight) => flight.delayed, { name: 'only-delayed' }).to(`${prefix}flights-delayed`, { value: json<EnrichedFlight>() });

  builder.stream(`${prefix}flights-enriched`, { key: string(), value: json<EnrichedFlight>() }).sink(
    postgresSink({
      connection: database,
      mode,
      effect: insert<string, EnrichedFlight>({
        table: { schema, name: 'flights' },
        columns: {
          id: 'id',
          departed: 'departed',
          hour: 'hour',
          origin: 'origin',
          destination: 'destination',
          route: 'route',
          delay: 'delay',
          distance: 'distance',
          delayed: 'delayed',
        },
      }),
    }),
    { name: 'flights-table' },
  );
  return builder.build();
}

/** Epoch milliseconds of a date as the data writes it. Throws a TypeError for what is none. */
export function departureTime(date: string): number {
  const match = /^(\d{4})\/(\d\d)\/(\d\d) (\d\d):(\d\d)$/.exec(date);
  if (match === null) throw new TypeError(`'date' is '${date}' and not of the form 2001/01/31 23:59`);
  const [year, month, day, hour, minute] = match.slice(1).map(Number) as [number, number, number, number, number];
  return Date.UTC(year, month - 1, day, hour, minute);
}

function parseFlight(value: unknown): Flight {
  if (typeof value !== 'object' || value === null) throw new TypeError('a flight is an object');
  const { id, date, delay, distance, origin, destination } = value as Record<keyof Flight, unknown>;
  if (typeof id !== 'string' || typeof date !== 'string') throw new TypeError("'id' and 'date' are text");
  departureTime(date);
  if (!Number.isInteger(delay) || !Number.isInteger(distance)) throw new TypeError("'delay' and 'distance' are whole numbers");
  if (typeof origin !== 'string' || typeof destination !== 'string') throw new TypeError("'origin' and 'destination' are text");
  return { id, date, delay: delay as number, distance: distance as number, origin, destination };
}

function enrich(flight: Flight): EnrichedFlight {
  const departed = new Date(departureTime(flight.date));
  return {
    ...flight,
    route: `${flight.origin}-${flight.destination}`,
    departed: departed.toISOString(),
    hour: departed.getUTCHours(),
    delayed: flight.delay >= DELAYED_FROM_MINUTES,
  };
}

export default flightsTopology;
