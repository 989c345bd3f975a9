/**
 * The input of the flights pipeline: 20,000 real flights within the USA (January to March 2001) from the npm package `vega-datasets`, and among
 * them a few lines that are no flight.
 */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { IDEMPOTENCY_KEY_HEADER, type IdempotentProducer, partitionForKey, textHeader } from '../src/index.ts';
import { departureTime } from '../topologies/flights.ts';

export interface RawFlight {
  readonly date: string;
  readonly delay: number;
  readonly distance: number;
  readonly origin: string;
  readonly destination: string;
}

/** What sensors and interfaces send on a bad day; each must end as a dead letter, and hold nothing up. */
const BAD_LINES = [
  '',
  '{"date":"2001/01/',
  '[]',
  '{"id":"x","date":"yesterday","delay":1,"distance":1,"origin":"SFO","destination":"LAX"}',
  '\u0000',
];
const BAD_LINE_EVERY = 1_000;

/** The dataset's file as text: what Postgres is asked the same question over. */
export async function rawFlightsFile(): Promise<string> {
  const entry = createRequire(import.meta.url).resolve('vega-datasets');
  return await readFile(join(dirname(entry), '..', 'data', 'flights-20k.json'), 'utf8');
}

export interface FlightsInput {
  readonly flights: readonly RawFlight[];
  readonly badLines: number;
}

/** The id that a flight is counted by: its line in the file. */
export function flightId(line: number): string {
  return `flight-${line}`;
}

/** Publishes all flights, keyed by origin, with their own times and an idempotency key each; every 1,000th is followed by a bad line. */
export async function publishFlights(
  producer: IdempotentProducer,
  topic: string,
  flights: readonly RawFlight[],
  signal: AbortSignal,
): Promise<FlightsInput> {
  await producer.loadTopics([topic]);
  const partitions = producer.partitionCount(topic) ?? 1;
  let badLines = 0;
  for (const [line, flight] of flights.entries()) {
    signal.throwIfAborted();
    const id = flightId(line);
    const partition = partitionForKey(flight.origin, partitions);
    const timestamp = departureTime(flight.date);
    producer.append(topic, partition, flight.origin, JSON.stringify({ id, ...flight }), timestamp, [
      textHeader(IDEMPOTENCY_KEY_HEADER, id),
    ]);
    if (line % BAD_LINE_EVERY === BAD_LINE_EVERY / 2) {
      const bad = BAD_LINES[badLines % BAD_LINES.length] ?? '';
      producer.append(topic, partition, flight.origin, bad, timestamp, [textHeader(IDEMPOTENCY_KEY_HEADER, `bad-line-${badLines}`)]);
      badLines++;
    }
    await producer.ready();
  }
  await producer.flush();
  return { flights, badLines };
}
