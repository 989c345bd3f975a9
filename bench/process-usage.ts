import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

export interface ProcessUsage {
  /** Resident set, bytes. */
  readonly memory: number;
  /** Of all its threads, in user and in system mode. */
  readonly cpuSeconds: number;
}

/** Linux counts in hundredths of a second wherever it shows times to programs. */
const TICKS_PER_SECOND = 100;

/** What a process has used so far. Throws when it is gone. */
export async function processUsage(pid: number): Promise<ProcessUsage> {
  if (process.platform === 'linux') {
    const [stat, status] = await Promise.all([readFile(`/proc/${pid}/stat`, 'utf8'), readFile(`/proc/${pid}/status`, 'utf8')]);
    // The second field is the program's name, which may hold anything.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const kilobytes = /^VmRSS:\s+(\d+)/m.exec(status)?.[1];
    return { memory: Number(kilobytes) * 1024, cpuSeconds: (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND };
  }
  const { stdout } = await promisify(execFile)('ps', ['-o', 'rss=,time=', '-p', String(pid)]);
  const [rss, time] = stdout.trim().split(/\s+/);
  const seconds = (time ?? '').split(/[:-]/).reduce((sum, part) => sum * 60 + Number(part), 0);
  return { memory: Number(rss) * 1024, cpuSeconds: seconds };
}
