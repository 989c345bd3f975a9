/**
 * Processes join and leave while records flow. Guards against records that two owners process, records that nobody does, and an order that
 * breaks where a partition changes its owner.
 */
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { exact, exactInKafka, type Judgement, type KafkaJudgement } from '../support/judge.ts';
import type { InputFlow } from '../support/input-records.ts';
import { ProcessBench, type Scenario } from '../support/process-bench.ts';

const RECORDS_PER_SECOND = 1_500;
/** Committed between two events. */
const STEP = 500;
const PROCESSES = { slowMs: 0.1, sliceRecords: 20 };

let bench: ProcessBench;

beforeAll(async () => {
  bench = await ProcessBench.open({ brokers: inject('kafkaBrokers'), jars: inject('kafkaJars'), databaseUrl: inject('databaseUrl') });
});

afterAll(async () => {
  await bench.close();
});

interface Outcome {
  readonly sent: number;
  readonly kafka: KafkaJudgement;
  readonly postgres: Judgement;
}

/** Stops the flow, lets it drain, and counts. */
async function judged(scenario: Scenario, flow: InputFlow): Promise<Outcome> {
  const sent = await flow.stop();
  await scenario.drained();
  await scenario.settled();
  await scenario.stop();
  return { sent, kafka: await scenario.judgeKafka(), postgres: await scenario.judgePostgres() };
}

function exactly({ sent }: Outcome): Outcome {
  return { sent, kafka: exactInKafka(sent), postgres: exact(sent) };
}

describe('a rebalance while records flow loses or repeats some', { timeout: 240_000 }, () => {
  it.concurrent('not when processes join one after the other and leave in order', async () => {
    const scenario = await bench.scenario({ records: 0, sink: 'exactly-once', processes: PROCESSES });
    const flow = scenario.flow(RECORDS_PER_SECOND);
    const a = scenario.start('a');
    await scenario.progress(STEP);
    const b = scenario.start('b');
    await b.running();
    const c = scenario.start('c');
    await c.running();
    await scenario.progress(STEP);
    await a.stop();
    await scenario.progress(STEP);
    await b.stop();
    await scenario.progress(STEP);
    const outcome = await judged(scenario, flow);
    expect(outcome).toEqual(exactly(outcome));
  });

  it.concurrent('not when they are killed, and others take their places', async () => {
    const scenario = await bench.scenario({ records: 0, sink: 'exactly-once', processes: PROCESSES });
    const flow = scenario.flow(RECORDS_PER_SECOND);
    const a = scenario.start('a');
    const b = scenario.start('b');
    await a.running();
    await b.running();
    await scenario.progress(STEP);
    await b.kill();
    scenario.start('c');
    await scenario.progress(STEP);
    await a.kill();
    scenario.start('d');
    await scenario.progress(STEP);
    const outcome = await judged(scenario, flow);
    expect(outcome).toEqual(exactly(outcome));
  });

  it.concurrent('not when one is killed in the middle of a rebalance', async () => {
    const scenario = await bench.scenario({ records: 0, sink: 'exactly-once', processes: PROCESSES });
    const flow = scenario.flow(RECORDS_PER_SECOND);
    const a = scenario.start('a', { failPoint: { name: 'after-send-offsets', nth: 15, action: 'wait' } });
    await a.reached();
    // It stands in the middle of a commit while the group asks it to rejoin, and dies before it can.
    const b = scenario.start('b');
    await expect.poll(() => b.log, { timeout: 60_000, interval: 50 }).toContain('"msg":"started"');
    await a.kill();
    await b.running();
    await scenario.progress(STEP);
    const outcome = await judged(scenario, flow);
    expect(outcome).toEqual(exactly(outcome));
  });
});
