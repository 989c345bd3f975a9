/**
 * What each guarantee loses and repeats inside Kafka when the process dies. A guarantee that is quietly stronger or weaker than its name
 * shows here: the weak ones must show their fault.
 */
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { Guarantee } from '../../src/index.ts';
import type { FailPointName } from '../../src/model/fail-point.ts';
import { exactInKafka, type KafkaJudgement } from '../support/judge.ts';
import { ProcessBench } from '../support/process-bench.ts';

const RECORDS = 3_000;

let bench: ProcessBench;

beforeAll(async () => {
  bench = await ProcessBench.open({ brokers: inject('kafkaBrokers'), jars: inject('kafkaJars') });
});

afterAll(async () => {
  await bench.close();
});

/** Killed once at the fail point, or stopped in order in the middle; then run to the end. */
async function interrupted(guarantee: Guarantee, name: FailPointName, end: 'kill' | 'close'): Promise<KafkaJudgement> {
  const processes = { guarantee, slowMs: 0.2, sliceRecords: 50, staticMembership: true, sessionTimeoutMs: 20_000 };
  const scenario = await bench.scenario({ records: RECORDS, processes });
  const first = scenario.start('a', { failPoint: { name, nth: 4, action: end === 'kill' ? 'kill' : 'wait' } });
  await first.reached();
  if (end === 'kill') {
    expect(await first.exited()).toBe('SIGKILL');
  } else {
    first.release();
    await first.stop();
  }
  expect((await bench.reader.read(scenario.output!)).records.length).toBeLessThan(RECORDS);
  scenario.start('a');
  await scenario.drained();
  await scenario.stop();
  return await scenario.judgeKafka();
}

describe('a guarantee is not what it says', { timeout: 240_000 }, () => {
  it.concurrent.each(['after-flush', 'mid-processing'] as const)('exactly-once neither loses nor repeats: killed %s', async (name) => {
    expect(await interrupted('exactly-once', name, 'kill')).toEqual(exactInKafka(RECORDS));
  });

  it.concurrent('at-least-once repeats what was acknowledged and not committed, and loses nothing: killed after-flush', async () => {
    const judgement = await interrupted('at-least-once', 'after-flush', 'kill');
    expect(judgement).toMatchObject({ lost: [], invented: [], lag: 0 });
    expect(judgement.duplicated.length).toBeGreaterThan(0);
  });

  it.concurrent('at-least-once loses nothing: killed mid-processing', async () => {
    expect(await interrupted('at-least-once', 'mid-processing', 'kill')).toMatchObject({ lost: [], invented: [], lag: 0 });
  });

  it.concurrent('at-most-once loses what it had committed and not done, and repeats nothing: killed mid-processing', async () => {
    const judgement = await interrupted('at-most-once', 'mid-processing', 'kill');
    expect(judgement).toMatchObject({ duplicated: [], invented: [], outOfOrder: [], lag: 0 });
    expect(judgement.lost.length).toBeGreaterThan(0);
  });

  it.concurrent.each(['at-most-once', 'at-least-once', 'exactly-once'] as const)(
    '%s is exact when nothing dies: a close drains',
    async (guarantee) => {
      expect(await interrupted(guarantee, 'mid-processing', 'close')).toEqual(exactInKafka(RECORDS));
    },
  );
});
