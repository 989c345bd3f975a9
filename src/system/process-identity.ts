import { readFile } from 'node:fs/promises';
import { hostname } from 'node:os';

/** What tells one process from another, also after its number was given to a new one. */
export interface ProcessIdentity {
  readonly host: string;
  readonly pid: number;
  /** The boot of the machine and the process's start in clock ticks after it; '' where the system does not tell. */
  readonly startedAt: string;
}

/** Of this process. */
export async function processIdentity(): Promise<ProcessIdentity> {
  return { host: hostname(), pid: process.pid, startedAt: (await startOf(process.pid)) ?? '' };
}

/**
 * Whether the process exists. A stopped one does, a zombie that only waits to be reaped does not. Of a process on another host nothing can
 * be known, so it counts as alive.
 */
export async function isAlive(identity: ProcessIdentity): Promise<boolean> {
  if (identity.host !== hostname()) return true;
  try {
    process.kill(identity.pid, 0);
  } catch (error) {
    // It exists, but belongs to another user.
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') return false;
  }
  if (identity.startedAt === '') return true;
  const started = await startOf(identity.pid);
  return started === undefined ? (await startOf(process.pid)) === undefined : started === identity.startedAt;
}

/** Undefined where there is no /proc, or the process is gone or a zombie. */
async function startOf(pid: number): Promise<string | undefined> {
  try {
    const boot = (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
    // The second field, the command, is in brackets and may hold anything.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const state = fields[0];
    // Fields 3 (state) and 22 (start time) of proc_pid_stat(5).
    const ticks = fields[19];
    return state === 'Z' || state === 'X' || ticks === undefined ? undefined : `${boot}/${ticks}`;
  } catch {
    return undefined;
  }
}
