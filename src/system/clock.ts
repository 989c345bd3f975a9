import { setTimeout as delay } from 'node:timers/promises';
import type { Clock, Random } from '../model/clock.ts';

/** The machine's clock: the only place outside the adapters where real time enters. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep: async (ms, signal) => {
    await delay(ms, undefined, signal === undefined ? undefined : { signal });
  },
};

export const systemRandom: Random = () => Math.random();
