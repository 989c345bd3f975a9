/** The map job in Tidemark: the whole engine with its defaults, so exactly-once with a transaction every 100 ms. */
import { parseArgs } from 'node:util';
import { Application, json, StreamsBuilder, string } from '../src/index.ts';
import type { Purchase } from './purchase.ts';

const { values: options } = parseArgs({
  options: { brokers: { type: 'string' }, group: { type: 'string' }, in: { type: 'string' }, out: { type: 'string' } },
});
const { brokers, group, in: input, out } = options;
if (brokers === undefined || group === undefined || input === undefined || out === undefined) {
  throw new Error('usage: tidemark-map.ts --brokers HOST:PORT --group NAME --in TOPIC --out TOPIC');
}

const builder = new StreamsBuilder();
builder
  .stream(input, { key: string(), value: json<Purchase>() })
  .mapValues((purchase) => {
    // In place, as the jobs that it is paired with do it: the object was made for this record alone.
    purchase.processed = true;
    return purchase;
  })
  .to(out, { value: json<Purchase>() });

const application = new Application({
  applicationId: group,
  topology: builder.build(),
  kafka: { brokers: brokers.split(',') },
  logger: { level: 'warn' },
});
application.onState((state) => {
  if (state === 'running') console.log('{"state":"running"}');
});
process.once('SIGTERM', () => void application.close());
await application.start();
await application.finished;
