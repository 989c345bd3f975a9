import type { Clock } from '../model/clock.ts';

/** Waits for a promise no longer than `ms`. Whether it has ended in time; how it ended is its owner's matter. */
export async function endsWithin(clock: Clock, ms: number, promise: Promise<unknown>): Promise<boolean> {
  const abort = new AbortController();
  const settled = promise.then(
    () => true,
    () => true,
  );
  const timeout = clock.sleep(Math.max(0, ms), abort.signal).then(
    () => false,
    () => true,
  );
  const inTime = await Promise.race([settled, timeout]);
  abort.abort();
  return inTime;
}
