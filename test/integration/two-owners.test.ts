/**
 * Two processes take themselves for the same instance. Guards against two that fence each other for ever, each repeating what the other has
 * dropped, without a word of the reason.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { ApplicationProcess } from '../support/application-process.ts';
import { drained, exactInKafka } from '../support/judge.ts';
import { ProcessBench, type Scenario } from '../support/process-bench.ts';

const RECORDS = 4_000;
const DEADLINE_MS = 60_000;

let bench: ProcessBench;

beforeAll(async () => {
  bench = await ProcessBench.open({ brokers: inject('kafkaBrokers'), jars: inject('kafkaJars') });
});

afterAll(async () => {
  await bench.close();
});

/** That the other has failed is as it should be. */
async function done({ applicationId: group, input: topic }: Scenario, survivor: ApplicationProcess): Promise<void> {
  const check = (): void => {
    if (survivor.failure !== undefined) throw new Error(`${survivor.failure}\n${survivor.log}`);
  };
  await drained(bench.reader, { group, topic }, { deadlineMs: DEADLINE_MS, check });
}

describe('two processes with the same instance id', () => {
  it.concurrent('in the same state directory: the second is refused at its start', async () => {
    const scenario = await bench.scenario({ records: 500 });
    const first = scenario.start('a');
    await first.running();
    const second = scenario.start('a');
    expect(await second.exited()).toBe('1');
    expect(second.failure).toMatch(/ConfigurationError: option 'instanceId': the instance 'a' runs already, in process \d+/);
    expect(second.failure).toContain(`in process ${first.pid} `);

    await done(scenario, first);
    await first.stop();
    expect(await scenario.judgeKafka()).toEqual(exactInKafka(500));
  });

  it.concurrent.each([
    { membership: 'dynamic', staticMembership: false },
    { membership: 'static', staticMembership: true },
  ])(
    'in different state directories, $membership members: one ends and names the instance id',
    async ({ membership, staticMembership }) => {
      // Slow enough that both are at work when they meet, again and again.
      const processes = { slowMs: 1, sliceRecords: 50, staticMembership, transactionTimeoutMs: 4_000 };
      const scenario = await bench.scenario({ records: RECORDS, processes });
      const owners = await Promise.all(
        ['x', 'y'].map(async (machine) => {
          const stateDirectory = join(bench.directory, `${membership}-${machine}`);
          await mkdir(stateDirectory);
          return scenario.start('same', { stateDirectory });
        }),
      );
      const deadline = performance.now() + DEADLINE_MS;
      while (owners.every(({ failure }) => failure === undefined)) {
        if (performance.now() > deadline) throw new Error(`both go on\n${owners.map(({ log }) => log).join('\n---\n')}`);
        await sleep(50);
      }
      for (const { failure } of owners) if (failure !== undefined) expect(failure).toMatch(/instance[. ]id 'same'/);

      // Both may have ended, each by the other's doing.
      const left = owners.find(({ failure, hasExited }) => failure === undefined && !hasExited) ?? scenario.start('same');
      await done(scenario, left);
      await left.stop();
      expect(await scenario.judgeKafka()).toEqual(exactInKafka(RECORDS));
    },
  );
});
