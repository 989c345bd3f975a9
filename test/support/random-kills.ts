import { setTimeout as sleep } from 'node:timers/promises';
import { SeededRandom } from '../../demo/seeded-random.ts';
import type { ApplicationProcess } from './application-process.ts';
import type { Scenario } from './process-bench.ts';

export interface RandomKillOptions {
  /** Printed, so that a run which fails can be repeated: the same processes die after the same shares of the work. */
  readonly seed: number;
  readonly kills: number;
  readonly processes: number;
  /** So many of the processes are no static members: when they die, their partitions wait for the session time-out. */
  readonly dynamic: number;
}

const PROGRESS_DEADLINE_MS = 60_000;

/**
 * Runs the processes and kills one after the other, each time after a random share of the work and a random moment more. A process that was
 * killed is started again at once. Returns how many kills there were while work was left.
 */
export async function killAtRandom(scenario: Scenario, { seed, kills, processes, dynamic }: RandomKillOptions): Promise<number> {
  process.stderr.write(`random kills: TIDEMARK_SEED=${seed}\n`);
  const random = new SeededRandom(seed);
  const start = (index: number): ApplicationProcess => scenario.start(`p${index}`, { staticMembership: index < processes - dynamic });
  const running = Array.from({ length: processes }, (_, index) => start(index));
  // Most of the work is done between kills, and some is left for after the last one.
  const share = scenario.records / (kills + 2);
  let done = 0;
  while (done < kills) {
    await scenario.progress(share * random.between(0.3, 1), PROGRESS_DEADLINE_MS);
    await sleep(random.between(0, 100));
    if ((await scenario.lag()) === 0) return done;
    const index = random.integer(processes);
    await running[index]?.kill();
    running[index] = start(index);
    done++;
  }
  return done;
}
