/**
 * The broker dies with SIGKILL and comes back, hangs for a while, or is away when the application starts. Guards against what was
 * acknowledged and is gone, what is sent twice because nobody answered, and an application that needs help to go on.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { FailPointName } from '../../src/model/fail-point.ts';
import { ApplicationBench, copyTopology, type RunningApplication, until } from '../support/application-bench.ts';
import { IndependentReader } from '../support/independent-reader.ts';
import { fillInput } from '../support/input-records.ts';
import { drained, exactInKafka, judgeKafka } from '../support/judge.ts';
import { startBroker } from '../support/stack.ts';

const RECORDS = 2_000;
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

/** Holds the application at a place in its work, so that what happens to the broker happens in the middle of a transaction. */
class Hold {
  #place: { readonly name: FailPointName; left: number; readonly reached: () => void } | undefined;
  #gate: Promise<void> | undefined;
  #release: () => void = () => undefined;

  /** At the n-th time from now. Resolves when it stands there. */
  async at(name: FailPointName, nth: number): Promise<void> {
    this.#gate = new Promise((resolve) => (this.#release = resolve));
    const reached = new Promise<void>((resolve) => (this.#place = { name, left: nth, reached: resolve }));
    await reached;
  }

  release(): void {
    this.#release();
  }

  async pass(name: FailPointName): Promise<void> {
    const place = this.#place;
    if (place?.name !== name || --place.left > 0) return;
    this.#place = undefined;
    place.reached();
    await this.#gate;
  }
}

interface Copy extends RunningApplication {
  readonly hold: Hold;
  readonly applicationId: string;
  readonly input: string;
  readonly output: string;
}

async function copy(): Promise<Copy> {
  const [input, output] = [await bench.topic('in', PARTITIONS), await bench.topic('out', PARTITIONS)];
  await fillInput(bench.client, input, { records: RECORDS });
  const applicationId = bench.name('app');
  const hold = new Hold();
  const running = bench.application({
    applicationId,
    failPoints: async (name) => await hold.pass(name),
    topology: copyTopology(input, output),
    kafka: { connectionTimeout: 3_000, requestTimeout: 3_000 },
    requestTimeoutMs: 3_000,
    transactionTimeoutMs: 5_000,
    commitIntervalMs: 1,
    maxSliceRecords: 5,
    retryTimeoutMs: 90_000,
  });
  return { ...running, hold, applicationId, input, output };
}

/** Some is committed, and much is not. */
async function heldAt({ hold, output }: Copy, name: FailPointName): Promise<void> {
  await hold.at(name, 5);
  const written = (await reader.read(output)).records.length;
  expect(written).toBeGreaterThan(0);
  expect(written).toBeLessThan(RECORDS);
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
    for (const place of ['after-flush', 'end-txn-sent'] as const) {
      await heldAt(run, place);
      await broker.kill();
      run.hold.release();
      await broker.restart();
    }
    await finish(run);
    expect(run.events.filter(({ level }) => level === 'warn')).not.toEqual([]);
  });

  it('not when it hangs for longer than the session and every deadline', async () => {
    const run = await copy();
    await run.application.start();
    await heldAt(run, 'after-flush');
    broker.pause();
    run.hold.release();
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
