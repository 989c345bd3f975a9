/** The whole of it: three processes, killed 50 times at random moments while 200,000 records pass from topic to topic and into Postgres. */
import { randomInt } from 'node:crypto';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import { exact, exactInKafka } from '../support/judge.ts';
import { ProcessBench } from '../support/process-bench.ts';
import { killAtRandom } from '../support/random-kills.ts';

const RECORDS = 200_000;
const KILLS = 50;
const REPEAT_EVERY = 1_000;

let bench: ProcessBench;

beforeAll(async () => {
  bench = await ProcessBench.open({ brokers: inject('kafkaBrokers'), jars: inject('kafkaJars'), databaseUrl: inject('databaseUrl') });
});

afterAll(async () => {
  await bench.close();
});

it('50 kills at random moments lose or repeat nothing, in Kafka and in Postgres', { timeout: 30 * 60_000 }, async () => {
  const seed = Number(process.env['TIDEMARK_SEED'] ?? randomInt(2 ** 31));
  const scenario = await bench.scenario({
    records: RECORDS,
    keys: 500,
    partitions: 8,
    repeatEvery: REPEAT_EVERY,
    sink: 'exactly-once',
    processes: { slowMs: 0.1 },
  });
  // Two come back as the members that they were; the third one's partitions wait for its session time-out each time.
  const kills = await killAtRandom(scenario, { seed, kills: KILLS, processes: 3, dynamic: 1 });
  expect(kills).toBe(KILLS);
  await scenario.drained(180_000);
  await scenario.stop();
  expect(await scenario.judgeKafka(), `seed ${seed}`).toEqual(exactInKafka(RECORDS + RECORDS / REPEAT_EVERY));
  expect(await scenario.judgePostgres(), `seed ${seed}`).toEqual(exact(RECORDS));
});
