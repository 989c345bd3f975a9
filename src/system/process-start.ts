import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/**
 * When a process started, in the operating system's own words: only ever compared, to tell a process from a later one with the same number.
 * Undefined where no such process runs (a zombie that nobody has reaped does not run), or where the system does not tell.
 */
export function processStart(pid: number): string | undefined {
  return process.platform === 'linux' ? startOnLinux(pid) : startByPs(pid);
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
