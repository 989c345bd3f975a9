import { setTimeout as sleep } from 'node:timers/promises';
import { RetriableError } from '../../model/errors.ts';

const FIRST_BACK_OFF_MS = 20;
const LONGEST_BACK_OFF_MS = 500;

/**
 * Repeats what may be repeated without harm while it throws RetriableError, with a growing pause, until the deadline; then throws the last
 * error. `attempt` is given the time that is left.
 */
export async function retry<T>(timeoutMs: number, attempt: (remainingMs: number) => Promise<T>): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  for (let backOffMs = FIRST_BACK_OFF_MS; ; backOffMs = Math.min(backOffMs * 2, LONGEST_BACK_OFF_MS)) {
    try {
      return await attempt(Math.max(1, deadline - performance.now()));
    } catch (error) {
      if (!(error instanceof RetriableError) || performance.now() + backOffMs >= deadline) throw error;
      await sleep(backOffMs);
    }
  }
}
