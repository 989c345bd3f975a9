/**
 * The process dies at each step of the Postgres sink. Guards against an effect without its position, a position without its effect, and
 * effects that are there twice after a redelivery.
 */
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { SinkMode } from '../../src/index.ts';
import type { FailPointName } from '../../src/model/fail-point.ts';
import { exact } from '../support/judge.ts';
import { ProcessBench, type Scenario } from '../support/process-bench.ts';

const RECORDS = 2_000;
/** Each of these is sent twice by its producer, with the same idempotency key. */
const REPEAT_EVERY = 10;
const SENT = RECORDS + RECORDS / REPEAT_EVERY;
const PROCESSES = { sessionTimeoutMs: 6_000 };

let bench: ProcessBench;

beforeAll(async () => {
  bench = await ProcessBench.open({ brokers: inject('kafkaBrokers'), jars: inject('kafkaJars'), databaseUrl: inject('databaseUrl') });
});

afterAll(async () => {
  await bench.close();
});

interface Kill {
  readonly name: FailPointName;
  readonly nth: number;
}

/** Runs until it is killed there, and then again to the end. How many rows there were when it was dead. */
async function killed(scenario: Scenario, { name, nth }: Kill): Promise<number> {
  const first = scenario.start('a', { failPoint: { name, nth, action: 'kill' } });
  await first.reached();
  expect(await first.exited()).toBe('SIGKILL');
  const { records } = await scenario.judgePostgres();
  scenario.start('a');
  await scenario.drained();
  await scenario.stop();
  return records;
}

async function fromInput(mode: SinkMode): Promise<Scenario> {
  return await bench.scenario({ records: RECORDS, repeatEvery: REPEAT_EVERY, sink: mode, output: false, processes: PROCESSES });
}

describe('a process that is killed in the sink loses or repeats effects', { timeout: 240_000 }, () => {
  it.concurrent.each<Kill>([
    { name: 'sink-after-poll', nth: 3 },
    { name: 'sink-before-begin', nth: 5 },
    { name: 'sink-after-fence', nth: 5 },
    { name: 'sink-after-keys', nth: 5 },
    { name: 'sink-after-effects', nth: 5 },
    { name: 'sink-before-commit', nth: 5 },
    { name: 'sink-commit-sent', nth: 5 },
    { name: 'sink-after-commit', nth: 5 },
    { name: 'sink-after-offsets', nth: 1 },
  ])('not at $name in mode exactly-once', async (kill) => {
    const scenario = await fromInput('exactly-once');
    await killed(scenario, kill);
    expect(await scenario.judgePostgres()).toEqual(exact(RECORDS));
  });

  it.concurrent('not at sink-after-commit in mode key-only', async () => {
    const scenario = await fromInput('key-only');
    const before = await killed(scenario, { name: 'sink-after-commit', nth: 5 });
    expect(before).toBeGreaterThan(0);
    expect(await scenario.judgePostgres()).toEqual(exact(RECORDS));
  });

  it.concurrent('not at sink-after-commit in mode fence-only: what is there twice was sent twice', async () => {
    const scenario = await fromInput('fence-only');
    const before = await killed(scenario, { name: 'sink-after-commit', nth: 5 });
    expect(before).toBeGreaterThan(0);
    expect(await scenario.judgePostgres({ once: false })).toEqual(exact(SENT));
    expect((await scenario.judgePostgres()).duplicated).toHaveLength(SENT - RECORDS);
  });

  it.concurrent('but at sink-after-commit in mode at-least-once it repeats some, and loses none', async () => {
    const scenario = await fromInput('at-least-once');
    await killed(scenario, { name: 'sink-after-commit', nth: 5 });
    const judgement = await scenario.judgePostgres({ once: false });
    expect(judgement).toMatchObject({ lost: [], invented: [] });
    expect(judgement.duplicated.length).toBeGreaterThan(0);
  });

  it.concurrent('but at sink-before-begin in mode at-most-once it loses some, and repeats none', async () => {
    const scenario = await fromInput('at-most-once');
    await killed(scenario, { name: 'sink-before-begin', nth: 5 });
    const judgement = await scenario.judgePostgres({ once: false });
    expect(judgement).toMatchObject({ duplicated: [], invented: [], outOfOrder: [] });
    expect(judgement.lost.length).toBeGreaterThan(0);
  });
});

describe('a process that is killed in the sink writes what its Kafka transaction takes back', { timeout: 240_000 }, () => {
  it.concurrent.each<Kill>([
    { name: 'after-flush', nth: 3 },
    { name: 'end-txn-sent', nth: 3 },
    { name: 'sink-before-commit', nth: 5 },
    { name: 'sink-after-commit', nth: 5 },
  ])('not at $name: only committed records leave', async (kill) => {
    const scenario = await bench.scenario({
      records: RECORDS,
      repeatEvery: REPEAT_EVERY,
      sink: 'exactly-once',
      processes: { ...PROCESSES, slowMs: 0.2, sliceRecords: 50, staticMembership: true },
    });
    await killed(scenario, kill);
    expect(await scenario.judgeKafka()).toEqual({ ...exact(SENT), openTransactions: 0, lag: 0 });
    expect(await scenario.judgePostgres()).toEqual(exact(RECORDS));
  });
});
