/** The broker is gone or hangs, and the application has to be closed. Guards against a close that waits for the broker to come back. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ApplicationBench, copyTopology, until } from '../support/application-bench.ts';
import { IndependentReader } from '../support/independent-reader.ts';
import { fillInput } from '../support/input-records.ts';
import { drained, exactInKafka, judgeKafka } from '../support/judge.ts';
import { startBroker } from '../support/stack.ts';

const RECORDS = 3_000;
const CLOSE_MS = 3_000;

let broker: Awaited<ReturnType<typeof startBroker>>;
let bench: ApplicationBench;
let reader: IndependentReader;

beforeAll(async () => {
  broker = await startBroker();
  bench = await ApplicationBench.open(broker.brokers);
  reader = await IndependentReader.open({ brokers: broker.brokers, jars: broker.jars });
});

afterAll(async () => {
  await bench.close();
  await reader.close();
  await broker.close();
});

describe('a close that hangs', () => {
  it.each([
    ['is dead', async () => await broker.kill(), async () => await broker.restart()],
    ['hangs', async () => broker.pause(), async () => broker.resume()],
  ])('not when the broker %s: it ends in time, and the next instance goes on exactly there', async (_, away, back) => {
    const [input, output] = [await bench.topic('in', 2), await bench.topic('out', 2)];
    await fillInput(bench.client, input, { records: RECORDS });
    const options = { applicationId: bench.name('app'), topology: copyTopology(input, output), commitIntervalMs: 1, maxSliceRecords: 5 };
    const { application } = bench.application(options);
    await application.start();
    await until('some outputs', async () => (await reader.read(output)).records.length > 0);
    await away();
    try {
      const began = performance.now();
      await application.close({ timeoutMs: CLOSE_MS });
      expect(performance.now() - began).toBeLessThan(CLOSE_MS + 1_000);
      expect(application.state).toBe('closed');
    } finally {
      await back();
    }
    const next = bench.application(options).application;
    await next.start();
    await drained(reader, { group: options.applicationId, topic: input });
    await next.close();
    expect(await judgeKafka(reader, { input, output, group: options.applicationId })).toEqual(exactInKafka(RECORDS));
  });
});
