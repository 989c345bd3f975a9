import { json, StreamsBuilder, string } from '../src/index.ts';

interface Flight {
  readonly origin: string;
  readonly destination: string;
  /** Minutes; negative when it was early. */
  readonly delay: number;
}

const builder = new StreamsBuilder();

const { late, rest } = builder
  .stream('flights', { key: string(), value: json<Flight>() })
  .filter((flight) => flight.origin !== flight.destination)
  .split()
  .branch('late', (flight) => flight.delay > 15)
  .defaultBranch('rest');

late.mapValues((flight, key) => `${key}: ${flight.delay} minutes late in ${flight.destination}`).to('late-flights', { value: string() });
rest.to('other-flights');

export default builder.build();
