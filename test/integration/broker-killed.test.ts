/**
 * The broker dies with SIGKILL and comes back, hangs for a while, or is away when the application starts. Guards against what was
 * acknowledged and is gone, what is sent twice because nobody answered, and an application that needs help to go on.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ApplicationBench, copyTopology, type RunningApplication, until } from '../support/application-bench.ts';
import { IndependentReader } from '../support/independent-reader.ts';
import { fillInput } from '../support/input-records.ts';
import { drained, exactInKafka, judgeKafka } from '../support/judge.ts';
import { startBroker } from '../support/stack.ts';

const RECORDS = 4_000;
const PARTITIONS = 2;

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

interface Copy extends RunningApplication {
  readonly applicationId: string;
  readonly input: string;
  readonly output: string;
}

async function copy(): Promise<Copy> {
  const [input, output] = [await bench.topic('in', PARTITIONS), await bench.topic('out', PARTITIONS)];
  await fillInput(bench.client, input, { records: RECORDS });
  const applicationId = bench.name('app');
  const running = bench.application({
    applicationId,
    topology: copyTopology(input, output),
    kafka: { connectionTimeout: 3_000 },
    requestTimeoutMs: 3_000,
    transactionTimeoutMs: 5_000,
    commitIntervalMs: 1,
    maxSliceRecords: 5,
    retryTimeoutMs: 90_000,
  });
  return { ...running, applicationId, input, output };
}

/** Some is done and much is not. */
async function underWay({ application, output }: Copy, done = 0): Promise<void> {
  await until('some outputs', async () => {
    if (application.state === 'failed') await application.finished;
    const written = (await reader.read(output)).records.length;
    expect(written).toBeLessThan(RECORDS);
    return written > done;
  });
}

async function finish({ application, applicationId, input, output, events }: Copy, records = RECORDS): Promise<void> {
  const check = (): void => {
    if (application.state === 'failed') throw new Error(JSON.stringify(events));
  };
  await drained(reader, { group: applicationId, topic: input }, { check });
  await application.close();
  expect(await judgeKafka(reader, { input, output, group: applicationId })).toEqual(exactInKafka(records));
}

describe('a broker that goes away loses or repeats records', () => {
  it('not when it is killed twice in the middle of the work and started again', async () => {
    const run = await copy();
    await run.application.start();
    for (let kill = 1; kill <= 2; kill++) {
      await underWay(run);
      await broker.kill();
      await broker.restart();
    }
    await finish(run);
    expect(run.events.filter(({ level }) => level === 'warn')).not.toEqual([]);
  });

  it('not when it hangs for longer than the session and every deadline', async () => {
    const run = await copy();
    await run.application.start();
    await underWay(run);
    broker.pause();
    try {
      await until('the session is over', () => run.events.some(({ message }) => message === 'partitions lost'));
      expect(run.application.state).not.toBe('failed');
    } finally {
      broker.resume();
    }
    await finish(run);
  });

  it('not when it is away at the start', async () => {
    const run = await copy();
    await broker.kill();
    const started = run.application.start();
    try {
      await until('it has been looked for', () => run.events.some(({ message }) => message === 'the topics could not be checked yet'));
    } finally {
      await broker.restart();
    }
    await expect(started).resolves.toBeUndefined();
    await finish(run);
  });
});
