/**
 * The process dies at each step of the commit. Guards against outputs without their offsets, offsets without their outputs, both twice, and
 * a transaction that stays open and holds back every reader.
 */
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { FailPointName } from '../../src/model/fail-point.ts';
import { exactInKafka } from '../support/judge.ts';
import { ProcessBench } from '../support/process-bench.ts';

const RECORDS = 3_000;
/** Small slices that take longer than the commit interval: each transaction holds a few, and a kill is in the middle of the flow. */
const SLOW = { slowMs: 0.2, sliceRecords: 50, staticMembership: true, sessionTimeoutMs: 20_000 };

let bench: ProcessBench;

beforeAll(async () => {
  bench = await ProcessBench.open({ brokers: inject('kafkaBrokers'), jars: inject('kafkaJars') });
});

afterAll(async () => {
  await bench.close();
});

interface Kill {
  readonly name: FailPointName;
  readonly nth: number;
  /** Whether records of an unfinished transaction must be in the log when the process is dead: else the kill did not land where it should. */
  readonly open: boolean;
}

const KILLS: readonly Kill[] = [
  { name: 'after-poll', nth: 4, open: false },
  { name: 'mid-processing', nth: 7, open: false },
  { name: 'before-flush', nth: 3, open: false },
  { name: 'after-flush', nth: 3, open: true },
  { name: 'after-send-offsets', nth: 3, open: true },
  { name: 'end-txn-sent', nth: 3, open: false },
  { name: 'after-end-txn', nth: 3, open: false },
];

describe('a process that is killed in the middle of its work loses or repeats records', { timeout: 240_000 }, () => {
  it.concurrent.each(KILLS)('not at $name, when it is restarted', async ({ name, nth, open }) => {
    // The broker ends no transaction by itself within this test.
    const scenario = await bench.scenario({ records: RECORDS, processes: { ...SLOW, transactionTimeoutMs: 300_000 } });
    const killed = scenario.start('a', { failPoint: { name, nth, action: 'kill' } });
    await killed.reached();
    expect(await killed.exited()).toBe('SIGKILL');

    // It died with most of its work before it.
    const before = await bench.reader.read(scenario.output!);
    expect(before.records.length).toBeLessThan(RECORDS);
    if (open) expect(await bench.reader.openTransactions(scenario.output!)).not.toEqual([]);
    // The request had left the process, and nobody else ends the transaction.
    if (name === 'end-txn-sent') await scenario.settled();

    scenario.start('a');
    await scenario.drained();
    await scenario.stop();
    expect(await scenario.judgeKafka()).toEqual(exactInKafka(RECORDS));
  });

  it.concurrent.each(['after-flush', 'after-send-offsets', 'end-txn-sent', 'after-end-txn'] as const)(
    'not at %s, when another process takes over after the session time-out',
    async (name) => {
      const processes = { ...SLOW, staticMembership: false, sessionTimeoutMs: 6_000 };
      const scenario = await bench.scenario({ records: RECORDS, processes });
      const killed = scenario.start('a', { failPoint: { name, nth: 3, action: 'kill' } });
      await killed.reached();
      expect(await killed.exited()).toBe('SIGKILL');
      expect((await bench.reader.read(scenario.output!)).records.length).toBeLessThan(RECORDS);

      scenario.start('b');
      await scenario.drained();
      // The open transaction of `a`, whose id nobody takes over, is the broker's to abort.
      await scenario.settled();
      await scenario.stop();
      expect(await scenario.judgeKafka()).toEqual(exactInKafka(RECORDS));
    },
  );
});
