import { setTimeout as delay } from 'node:timers/promises';
import { processStart } from '../system/process-start.ts';
import { StackError } from './stack-error.ts';

/** One process, and no other that gets the same number later. */
export interface ProcessIdentity {
  readonly pid: number;
  /** When the process started, in the operating system's own words; only ever compared. */
  readonly startedAt: string;
}

/** Undefined where no such process runs (a zombie that nobody has reaped does not run). */
export function identify(pid: number): ProcessIdentity | undefined {
  const startedAt = processStart(pid);
  return startedAt === undefined ? undefined : { pid, startedAt };
}

/** Of the calling process. */
export function identifySelf(): ProcessIdentity {
  const me = identify(process.pid);
  if (me === undefined)
    throw new StackError('This process cannot find out when it was started (from /proc or with ps), by which a stack knows its owner.');
  return me;
}

export function isRunning(identity: ProcessIdentity): boolean {
  return identify(identity.pid)?.startedAt === identity.startedAt;
}

/** Sends a signal, unless the process is gone. Throws where this user may not signal it. */
export function signal(identity: ProcessIdentity, name: NodeJS.Signals): void {
  if (!isRunning(identity)) return;
  try {
    process.kill(identity.pid, name);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ESRCH') return;
    if (code === 'EPERM') {
      throw new StackError(`Process ${identity.pid} belongs to another user: run this command as the user who started the stack.`, {
        cause: error,
      });
    }
    throw error;
  }
}

/** True once the process is gone, false if it still runs after `deadlineMs`. */
export async function waitUntilGone(identity: ProcessIdentity, deadlineMs: number): Promise<boolean> {
  const end = performance.now() + deadlineMs;
  while (isRunning(identity)) {
    if (performance.now() > end) return false;
    await delay(20);
  }
  return true;
}

/** Sends each signal in turn until the process is gone. Throws if it survives them all. */
export async function stopProcess(
  identity: ProcessIdentity,
  steps: readonly { signal: NodeJS.Signals; deadlineMs: number }[],
): Promise<void> {
  for (const step of steps) {
    signal(identity, step.signal);
    if (await waitUntilGone(identity, step.deadlineMs)) return;
  }
  throw new StackError(`Process ${identity.pid} does not end, not even after ${steps.at(-1)?.signal ?? 'no signal'}. End it by hand.`);
}
