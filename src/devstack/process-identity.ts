import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { StackError } from './stack-error.ts';

/** One process, and no other that gets the same number later. */
export interface ProcessIdentity {
  readonly pid: number;
  /** When the process started, in the operating system's own words; only ever compared. */
  readonly startedAt: string;
}

/** Undefined where no such process runs (a zombie that nobody has reaped does not run). */
export function identify(pid: number): ProcessIdentity | undefined {
  const startedAt = process.platform === 'linux' ? startOnLinux(pid) : startByPs(pid);
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

function startOnLinux(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The command name stands in brackets and may itself hold spaces and brackets: proc(5) counts the fields from there on.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const state = fields[0];
    const ticks = fields[19];
    if (ticks === undefined || state === 'Z' || state === 'X') return undefined;
    return `${bootId()}:${ticks}`;
  } catch {
    return undefined;
  }
}

let cachedBootId: string | undefined;

function bootId(): string {
  cachedBootId ??= readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
  return cachedBootId;
}

function startByPs(pid: number): string | undefined {
  try {
    const out = execFileSync('ps', ['-o', 'state=,lstart=', '-p', String(pid)], {
      encoding: 'utf8',
      env: { ...process.env, LC_ALL: 'C' },
      timeout: 5_000,
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim();
    return out === '' || out.startsWith('Z') ? undefined : out.slice(out.indexOf(' ') + 1).trim();
  } catch {
    return undefined;
  }
}
