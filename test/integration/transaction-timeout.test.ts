/**
 * A step takes longer than the broker lets a transaction stay open, so that the broker aborts it under the step. Guards against outputs that
 * are in nobody's transaction, records that are done twice, and an application that does not get over it.
 */
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { json, string, StreamsBuilder, type Topology } from '../../src/index.ts';
import { ApplicationBench } from '../support/application-bench.ts';
import { IndependentReader } from '../support/independent-reader.ts';
import { fillInput, type InputValue } from '../support/input-records.ts';
import { drained, exactInKafka, judgeKafka } from '../support/judge.ts';

const RECORDS = 600;
const PARTITIONS = 2;
const TRANSACTION_TIMEOUT_MS = 1_000;
/** The broker looks for overdue transactions once a second. */
const BLOCKED_MS = TRANSACTION_TIMEOUT_MS + 2_000;
/** Some records are sent before the one that blocks, so that there is a transaction that can time out. */
const EAGER = { transactionTimeoutMs: TRANSACTION_TIMEOUT_MS, commitIntervalMs: 900, maxSliceRecords: 2, producer: { batchBytes: 100 } };

let bench: ApplicationBench;
let reader: IndependentReader;

beforeAll(async () => {
  bench = await ApplicationBench.open(inject('kafkaBrokers'));
  reader = await IndependentReader.open({ brokers: inject('kafkaBrokers'), jars: inject('kafkaJars') });
});

afterAll(async () => {
  await bench.close();
  await reader.close();
});

/** Blocks this process at the record, as often as `times` says. */
function blocking(input: string, output: string, n: number, times: number): { topology: Topology; calls: () => number } {
  let calls = 0;
  const builder = new StreamsBuilder();
  builder
    .stream(input, { key: string(), value: json<InputValue>() })
    .peek(({ id }) => {
      if (id !== `record-${n}` || calls === times) return;
      calls++;
      const until = performance.now() + BLOCKED_MS;
      while (performance.now() < until) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);
    })
    .to(output);
  return { topology: builder.build(), calls: () => calls };
}

describe('a step that blocks for longer than the time-out of the transaction', () => {
  it.each([1, 2] as const)('is done again in a new one under version %i: nothing is lost or doubled', async (transactionVersion) => {
    const [input, output] = [await bench.topic('in', PARTITIONS), await bench.topic('out', PARTITIONS)];
    await fillInput(bench.client, input, { records: RECORDS });
    const applicationId = bench.name('app');
    const { topology, calls } = blocking(input, output, 300, 2);
    const { application, events } = bench.application({
      applicationId,
      topology,
      kafka: { transactionVersion },
      ...EAGER,
    });
    await application.start();
    const check = (): void => {
      if (application.state === 'failed') throw new Error(JSON.stringify(events));
    };
    await drained(reader, { group: applicationId, topic: input }, { check });
    await application.close();
    // Once is not enough: what was done with the first call was aborted.
    expect(calls()).toBe(2);
    expect(events.filter(({ message }) => message === 'step failed').length).toBeGreaterThan(0);
    expect(await judgeKafka(reader, { input, output, group: applicationId })).toEqual(exactInKafka(RECORDS));
  });

  it('each time: the application ends and names transactionTimeoutMs', async () => {
    const [input, output] = [await bench.topic('in'), await bench.topic('out')];
    await fillInput(bench.client, input, { records: 200 });
    const applicationId = bench.name('app');
    const { topology } = blocking(input, output, 100, Number.POSITIVE_INFINITY);
    const running = bench.application({
      applicationId,
      topology,
      ...EAGER,
    });
    await running.application.start();
    const error = await running.failure();
    expect(error.message).toContain(`transactionTimeoutMs (${TRANSACTION_TIMEOUT_MS})`);
    expect((await reader.read(output)).records).toEqual([]);
    expect(await reader.openTransactions(output)).toEqual([]);
  });
});
