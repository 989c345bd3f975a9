import { spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { identify, isRunning, type ProcessIdentity } from './process-identity.ts';
import { StackError } from './stack-error.ts';

export interface UnixUser {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

export interface Command {
  readonly file: string;
  readonly args: readonly string[];
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  /** Run as this user; only root may ask for another one than itself. */
  readonly user?: UnixUser | undefined;
  /** Standard output and error are appended here. */
  readonly logFile: string;
}

/**
 * Starts a server that outlives this process: own process group (a Ctrl-C in the terminal is not its business), output to a file.
 * `onSpawn` is called in the same tick, so that whoever keeps the books knows of the process before anything else can go wrong.
 */
export async function spawnServer(command: Command, onSpawn: (identity: ProcessIdentity) => void): Promise<ProcessIdentity> {
  const log = openSync(command.logFile, 'a', 0o600);
  try {
    const child = spawn(command.file, command.args, {
      detached: true,
      stdio: ['ignore', log, log],
      ...(command.cwd === undefined ? {} : { cwd: command.cwd }),
      ...(command.env === undefined ? {} : { env: command.env }),
      ...(command.user === undefined ? {} : { uid: command.user.uid, gid: command.user.gid }),
    });
    const failed = new Promise<never>((_, reject) => {
      child.once('error', (error) => {
        reject(new StackError(`${command.file} could not be started: ${error.message}`, { cause: error }));
      });
    });
    const identity = child.pid === undefined ? undefined : identify(child.pid);
    if (identity !== undefined) onSpawn(identity);
    child.unref();
    const spawned = new Promise<void>((resolve) => child.once('spawn', resolve));
    await Promise.race([spawned, failed]);
    if (identity === undefined) throw new StackError(`${command.file} ended as soon as it was started.${logExcerpt(command.logFile)}`);
    return identity;
  } finally {
    closeSync(log);
  }
}

/** Runs a short command to its end. Throws with what it printed if it fails or takes longer than `deadlineMs`. */
export async function run(
  file: string,
  args: readonly string[],
  options: {
    deadlineMs: number;
    cwd?: string;
    env?: NodeJS.ProcessEnv;
    user?: UnixUser | undefined;
    /** As in `spawnServer`: even a short command goes on when this process is killed meanwhile. */
    onSpawn?: ((identity: ProcessIdentity) => void) | undefined;
  },
): Promise<string> {
  return await new Promise<string>((resolve, reject) => {
    const child = spawn(file, args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
      ...(options.env === undefined ? {} : { env: options.env }),
      ...(options.user === undefined ? {} : { uid: options.user.uid, gid: options.user.gid }),
    });
    const identity = child.pid === undefined ? undefined : identify(child.pid);
    if (identity !== undefined) options.onSpawn?.(identity);
    let output = '';
    const keep = (chunk: Buffer): void => {
      output = (output + chunk.toString()).slice(-64 * 1024);
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    let timedOut = false;
    const timer = setTimeout(() => {
      timedOut = true;
      child.kill('SIGKILL');
    }, options.deadlineMs);
    child.once('error', (error) => {
      clearTimeout(timer);
      reject(new StackError(`${file} could not be run: ${error.message}`, { cause: error }));
    });
    child.once('close', (code, signal) => {
      clearTimeout(timer);
      if (code === 0) return resolve(output);
      const how = timedOut
        ? `took longer than ${options.deadlineMs / 1000} s`
        : code === null
          ? `ended by ${signal ?? 'a signal'}`
          : `ended with code ${code}`;
      reject(new StackError(`${file} ${args[0] ?? ''} ${how}.${excerpt(output)}`));
    });
  });
}

/**
 * Waits until the server has written `ready` to its log. A port that answers proves nothing: it may be another server's that was faster.
 * Throws with the last lines of the log if the server ends first or the deadline passes.
 */
export async function waitForLog(
  server: { readonly name: string; readonly identity: ProcessIdentity; readonly logFile: string; readonly fromByte: number },
  ready: RegExp,
  deadlineMs: number,
): Promise<void> {
  const end = performance.now() + deadlineMs;
  for (;;) {
    const alive = isRunning(server.identity);
    const log = readFileSync(server.logFile).subarray(server.fromByte).toString();
    if (ready.test(log)) return;
    if (!alive) throw new ServerStartError(`${server.name} ended while it started.${excerpt(log)}`, log);
    if (performance.now() > end)
      throw new ServerStartError(`${server.name} was not ready after ${deadlineMs / 1000} s.${excerpt(log)}`, log);
    await delay(25);
  }
}

/** A server did not come up; `log` is all that it wrote. */
export class ServerStartError extends StackError {
  readonly log: string;

  constructor(message: string, log: string) {
    super(/No space left on device/i.test(log) ? `${message}\nThe disk is full: make room, or choose another directory.` : message);
    this.log = log;
  }

  /** Somebody else took the port between our look and the server's bind: worth another try with another port. */
  get portTaken(): boolean {
    return /Address already in use|BindException|port is already allocated|could not bind/i.test(this.log);
  }
}

function logExcerpt(file: string): string {
  return excerpt(readFileSync(file, 'utf8'));
}

export function excerpt(output: string): string {
  const lines = output.trim().split('\n').slice(-20);
  return lines.length === 1 && lines[0] === '' ? ' It printed nothing.' : ` Its last lines:\n  ${lines.join('\n  ')}`;
}
