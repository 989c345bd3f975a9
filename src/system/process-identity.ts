import { hostname } from 'node:os';
import { processStart } from './process-start.ts';

/** What tells one process from another, also after its number was given to a new one. */
export interface ProcessIdentity {
  readonly host: string;
  readonly pid: number;
  /** See `processStart`; '' where the system does not tell. */
  readonly startedAt: string;
}

/** Of this process. */
export function processIdentity(): ProcessIdentity {
  return { host: hostname(), pid: process.pid, startedAt: processStart(process.pid) ?? '' };
}

/**
 * Whether the process exists. A stopped one does, a zombie that only waits to be reaped does not. Of a process on another host nothing can
 * be known, so it counts as alive.
 */
export function isAlive(identity: ProcessIdentity): boolean {
  if (identity.host !== hostname()) return true;
  try {
    process.kill(identity.pid, 0);
  } catch (error) {
    // It exists, but belongs to another user.
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') return false;
  }
  if (identity.startedAt === '') return true;
  const started = processStart(identity.pid);
  return started === undefined ? processStart(process.pid) === undefined : started === identity.startedAt;
}
