/** A topic into a table in Tidemark: position and idempotency keys in the transaction of the rows, 500 records each, which are the defaults. */
import { parseArgs } from 'node:util';
import { Application, insert, json, postgresSink, StreamsBuilder, string } from '../src/index.ts';
import type { Purchase } from './purchase.ts';

const { values: options } = parseArgs({
  options: {
    brokers: { type: 'string' },
    group: { type: 'string' },
    in: { type: 'string' },
    database: { type: 'string' },
    schema: { type: 'string' },
  },
});
const { brokers, group, in: input, database, schema } = options;
if (brokers === undefined || group === undefined || input === undefined || database === undefined || schema === undefined) {
  throw new Error('usage: tidemark-sink.ts --brokers HOST:PORT --group NAME --in TOPIC --database URL --schema NAME');
}

const builder = new StreamsBuilder();
builder.stream(input, { key: string(), value: json<Purchase>() }).sink(
  postgresSink({
    connection: database,
    schema,
    effect: insert<string, Purchase>({
      table: { schema, name: 'purchases' },
      columns: { id: 'id', customer: 'user', amount: 'amount', sent: 'ts', kind: 'kind', region: 'region', pad: 'pad' },
    }),
  }),
);

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
