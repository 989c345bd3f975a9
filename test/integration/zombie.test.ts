/**
 * The process stands still at each step of the commit and of the sink for longer than the group waits for it; a second one takes over, and then
 * the first goes on where it stood. Guards against a zombie that finishes what its successor has done already, or cannot find back.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { FailPointName } from '../../src/model/fail-point.ts';
import type { ApplicationProcess } from '../support/application-process.ts';
import { until } from '../support/application-bench.ts';
import { fillInput } from '../support/input-records.ts';
import { exact, exactInKafka } from '../support/judge.ts';
import { ProcessBench, type Scenario } from '../support/process-bench.ts';

const RECORDS = 1_500;
/** Written when the zombie goes on, so that it goes on in the middle of work. */
const MORE = 500;
const PARTITIONS = 2;
/** Shorter than the session: when the successor comes, nothing that the zombie left open may be in its way. */
const TIMES = { sessionTimeoutMs: 6_000, transactionTimeoutMs: 4_000 };
const RETURN_DEADLINE_MS = 60_000;

let bench: ProcessBench;

beforeAll(async () => {
  bench = await ProcessBench.open({ brokers: inject('kafkaBrokers'), jars: inject('kafkaJars'), databaseUrl: inject('databaseUrl') });
});

afterAll(async () => {
  await bench.close();
});

/**
 * The shared reader waits for the outcome of each transaction that it comes upon, and all tests with it: it is asked when the work is done. What
 * this says is not relied upon.
 */
async function drained(scenario: Scenario): Promise<void> {
  const { input, applicationId, output, sinkGroup } = scenario;
  const group = output === undefined ? sinkGroup : applicationId;
  await until('all is committed', async () => {
    scenario.check();
    const committed = new Map((await bench.admin.groupOffsets(group, [input])).map(({ partition, offset }) => [partition, offset]));
    const bounds = await bench.admin.logBounds(input);
    return bounds.every(({ partition, highWatermark }) => committed.get(partition) === highWatermark);
  });
  await scenario.drained();
}

/** The zombie goes on, and more comes. Resolves when all is done and the zombie is a member again. */
async function goOn(scenario: Scenario, zombie: ApplicationProcess, assigned: RegExp): Promise<void> {
  const before = zombie.log.length;
  const seen = assignments(zombie, assigned);
  zombie.resume();
  await fillInput(bench.client, scenario.input, { records: MORE, from: RECORDS });
  const deadline = performance.now() + RETURN_DEADLINE_MS;
  // The log is a window, in which old lines make room for new ones.
  while (assignments(zombie, assigned) <= seen && !assigned.test(zombie.log.slice(before))) {
    scenario.check();
    if (performance.now() > deadline) throw new Error(`the zombie has not found back\n${zombie.log}`);
    await sleep(50);
  }
  await drained(scenario);
}

function assignments({ log }: ApplicationProcess, assigned: RegExp): number {
  return log.split('\n').filter((line) => assigned.test(line)).length;
}

const COMMIT_STEPS: readonly (readonly [FailPointName, number])[] = [
  // The first poll brings the partitions, the second records.
  ['after-poll', 2],
  ['mid-processing', 5],
  ['after-flush', 3],
  ['after-send-offsets', 3],
  ['end-txn-sent', 3],
  ['after-end-txn', 3],
];

describe('a process that stood still in the commit repeats or loses records', () => {
  it.concurrent.each(COMMIT_STEPS)('not at %s', async (name, nth) => {
    const processes = { ...TIMES, slowMs: 0.2, sliceRecords: 50 };
    const scenario = await bench.scenario({ records: RECORDS, partitions: PARTITIONS, processes });
    const zombie = scenario.start('a', { failPoint: { name, nth, action: 'stop' } });
    await zombie.reached();
    expect((await bench.reader.read(scenario.output!)).records.length).toBeLessThan(RECORDS);

    const successor = scenario.start('b');
    await drained(scenario);
    expect(await scenario.judgeKafka()).toEqual(exactInKafka(RECORDS));

    await goOn(scenario, zombie, /"partitions assigned"/);
    await scenario.stop();
    expect(await scenario.judgeKafka()).toEqual(exactInKafka(RECORDS + MORE));
    expect([zombie.failure, successor.failure]).toEqual([undefined, undefined]);
  });
});

const SINK_STEPS: readonly (readonly [FailPointName, number])[] = [
  ['sink-before-begin', 2],
  ['sink-after-keys', 2],
  ['sink-after-effects', 2],
  ['sink-before-commit', 2],
  ['sink-commit-sent', 2],
  ['sink-after-commit', 2],
];

describe('a process that stood still in the sink repeats or loses rows', () => {
  it.concurrent.each(SINK_STEPS)('not at %s', async (name, nth) => {
    const scenario = await bench.scenario({
      records: RECORDS,
      partitions: PARTITIONS,
      output: false,
      sink: 'exactly-once',
      processes: TIMES,
    });
    const { database } = bench;
    const sink = {
      database: database!.url,
      mode: 'exactly-once',
      table: scenario.table!,
      maxBatchRecords: 100,
      // The server ends what the zombie has open, which holds the fence that its successor needs.
      idleInTransactionTimeoutMs: 3_000,
    } as const;
    const zombie = scenario.start('a', { sink, failPoint: { name, nth, action: 'stop' } });
    await zombie.reached();
    expect((await scenario.judgePostgres()).records).toBeLessThan(RECORDS);

    const successor = scenario.start('b', { sink });
    await drained(scenario);
    expect(await scenario.judgePostgres()).toEqual(exact(RECORDS));

    await goOn(scenario, zombie, /partitions assigned to the sink stage/);
    await scenario.stop();
    expect(await scenario.judgePostgres()).toEqual(exact(RECORDS + MORE));
    expect([zombie.failure, successor.failure]).toEqual([undefined, undefined]);
  });
});
