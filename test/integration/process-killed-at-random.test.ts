/** Kills at moments that nobody has thought of. Guards against what the tests of single steps have forgotten. */
import { randomInt } from 'node:crypto';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import { exact, exactInKafka } from '../support/judge.ts';
import { ProcessBench } from '../support/process-bench.ts';
import { killAtRandom } from '../support/random-kills.ts';

const RECORDS = 20_000;
const KILLS = 6;

let bench: ProcessBench;

beforeAll(async () => {
  bench = await ProcessBench.open({ brokers: inject('kafkaBrokers'), jars: inject('kafkaJars'), databaseUrl: inject('databaseUrl') });
});

afterAll(async () => {
  await bench.close();
});

it('6 kills at random moments lose or repeat nothing', { timeout: 240_000 }, async () => {
  const seed = Number(process.env['TIDEMARK_SEED'] ?? randomInt(2 ** 31));
  const scenario = await bench.scenario({
    records: RECORDS,
    repeatEvery: 100,
    sink: 'exactly-once',
    processes: { slowMs: 0.1, sliceRecords: 100 },
  });
  const kills = await killAtRandom(scenario, { seed, kills: KILLS, processes: 2, dynamic: 0 });
  expect(kills).toBe(KILLS);
  await scenario.drained();
  await scenario.stop();
  expect(await scenario.judgeKafka(), `seed ${seed}`).toEqual(exactInKafka(RECORDS + RECORDS / 100));
  expect(await scenario.judgePostgres(), `seed ${seed}`).toEqual(exact(RECORDS));
});
