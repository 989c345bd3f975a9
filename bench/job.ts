import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { processUsage, type ProcessUsage } from './process-usage.ts';

export interface Command {
  readonly file: string;
  readonly args: readonly string[];
  /** Added to the environment of this process. */
  readonly env?: Readonly<Record<string, string>>;
}

const START_DEADLINE_MS = 60_000;
const STOP_DEADLINE_MS = 20_000;
const KEPT_OUTPUT = 8_000;

/** A process of the benchmark. It says `{"state":"running"}` when it is ready, and may end with one JSON object on standard output. */
export class Job {
  readonly #name: string;
  readonly #process: ChildProcessByStdio<null, Readable, Readable>;
  readonly #ended: Promise<{ readonly how: string; readonly ok: boolean }>;
  readonly #running: Promise<void>;
  #output = '';
  #lastLine = '';
  #stopping = false;

  /** Killed when `signal` aborts. */
  constructor(name: string, command: Command, signal: AbortSignal) {
    this.#name = name;
    const child = spawn(command.file, command.args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...command.env },
      signal,
      killSignal: 'SIGKILL',
    });
    this.#process = child;
    const keep = (text: string): void => {
      this.#output = (this.#output + text).slice(-KEPT_OUTPUT);
    };
    child.stderr.on('data', (chunk: Buffer) => keep(chunk.toString()));
    this.#ended = new Promise((resolve) => {
      child.once('error', (error) => resolve({ how: error.message, ok: false }));
      child.once('close', (code, by) => resolve({ how: `exit code ${code ?? by}`, ok: code === 0 }));
    });
    this.#running = new Promise((resolve) => {
      createInterface({ input: child.stdout }).on('line', (line) => {
        keep(`${line}\n`);
        if (line === '{"state":"running"}') resolve();
        else this.#lastLine = line;
      });
    });
  }

  /** Resolves when it says that it is running; rejects when it ends before, or takes more than a minute. */
  async running(): Promise<void> {
    await within(Promise.race([this.#running, this.failed()]), START_DEADLINE_MS, `'${this.#name}' to start`);
  }

  /** Resolves when it has done its work, for one that ends by itself. */
  async done(deadlineMs: number): Promise<void> {
    const { how, ok } = await within(this.#ended, deadlineMs, `'${this.#name}' to end`);
    if (!ok) throw this.#failure(how);
  }

  /** The JSON object that it ends with. */
  async result<T>(deadlineMs: number): Promise<T> {
    await this.done(deadlineMs);
    return JSON.parse(this.#lastLine) as T;
  }

  /** Rejects when the process ends without having been asked to; otherwise it never settles. */
  async failed(): Promise<never> {
    const { how } = await this.#ended;
    if (this.#stopping) return await new Promise<never>(() => undefined);
    throw this.#failure(how);
  }

  async usage(): Promise<ProcessUsage> {
    return await processUsage(this.#process.pid ?? -1);
  }

  /** Asks it to end, and kills it if it does not. What it does on its way out is not judged. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.#process.kill('SIGTERM');
    try {
      await within(this.#ended, STOP_DEADLINE_MS, `'${this.#name}' to stop`);
    } catch {
      this.#process.kill('SIGKILL');
      await this.#ended;
    }
  }

  #failure(how: string): Error {
    return new Error(`'${this.#name}' ended with ${how}:\n${this.#output}`);
  }
}

async function within<T>(promise: Promise<T>, ms: number, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited ${ms / 1000} s for ${what}`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
