import { type ChildProcess, fork } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { ApplicationState, Guarantee, SinkMode } from '../../src/index.ts';
import type { FailPointName } from '../../src/model/fail-point.ts';

/** What happens at a fail point: SIGKILL, SIGSTOP (until `resume`), or a wait inside the step (until `release`). */
export type FailPointAction = 'kill' | 'stop' | 'wait';

export interface FailPointRule {
  readonly name: FailPointName;
  /** The n-th time that the point is reached, from 1. Default 1. */
  readonly nth?: number;
  readonly action: FailPointAction;
}

/** One instance of an application, as JSON. Its topology: input -> mapValues -> output, and a table that a sink stage fills. */
export interface ProcessConfiguration {
  readonly brokers: string;
  readonly applicationId: string;
  readonly instanceId: string;
  readonly stateDirectory: string;
  readonly guarantee?: Guarantee;
  readonly commitIntervalMs?: number;
  readonly transactionTimeoutMs?: number;
  readonly sessionTimeoutMs?: number;
  readonly heartbeatIntervalMs?: number;
  readonly maxPollIntervalMs?: number;
  readonly retryTimeoutMs?: number;
  readonly offsetOutOfRange?: 'error' | 'earliest' | 'latest';
  readonly staticMembership?: boolean;
  /** The most bytes of one partition in one fetch. Default 16 KiB: a run then takes many polls and many transactions. */
  readonly fetchBytes?: number;
  /** The most records between two looks at the clock and the commit interval. Default 100. */
  readonly sliceRecords?: number;
  readonly input: string;
  /** Without it, nothing is mapped, and the sink reads `input`. */
  readonly output?: string;
  readonly sink?: {
    /** Connection string. */
    readonly database: string;
    readonly mode: SinkMode;
    /** With columns id, key and n, and without a unique constraint. */
    readonly table: string;
    /** Of Tidemark's own tables. Default `tidemark`. */
    readonly schema?: string;
    readonly maxBatchRecords?: number;
    readonly idleInTransactionTimeoutMs?: number;
  };
  /** What mapping one record costs, in milliseconds of this process. Default 0. */
  readonly slowMs?: number;
  readonly failPoint?: FailPointRule;
}

/** The stage that fills the table; its group is `<applicationId>-table`. */
export const SINK_STAGE = 'table';

/** The parent's messages to the child, and the child's to its parent. */
export type ToChild = { readonly configuration: ProcessConfiguration; readonly marker: string } | 'stop' | 'release';
export type FromChild = { readonly state: ApplicationState } | { readonly failed: string };

const START_DEADLINE_MS = 60_000;
const REACH_DEADLINE_MS = 60_000;
const STOP_DEADLINE_MS = 60_000;
const LOOK_MS = 20;
/** Of the log, for the message of a test that fails. */
const LOG_CHARACTERS = 20_000;

const alive = new Set<ChildProcess>();
// A stopped process cannot notice that its parent is gone.
process.once('exit', () => {
  for (const child of alive) child.kill('SIGKILL');
});

let started = 0;

/** A process that runs one instance of an application, to be killed and stopped from outside or at a fail point. */
export class ApplicationProcess {
  readonly configuration: ProcessConfiguration;
  readonly #child: ChildProcess;
  readonly #marker: string;
  readonly #ended: Promise<string>;
  #log = '';
  #state: ApplicationState = 'created';
  #failure: string | undefined;
  #end: string | undefined;

  private constructor(configuration: ProcessConfiguration, markerDirectory: string) {
    this.configuration = configuration;
    this.#marker = join(markerDirectory, `reached-${process.pid}-${++started}`);
    const child = fork(fileURLToPath(new URL('application-child.ts', import.meta.url)), {
      execArgv: ['--import', 'tsx'],
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    this.#child = child;
    alive.add(child);
    const gather = (chunk: Buffer): void => {
      this.#log = (this.#log + chunk.toString()).slice(-LOG_CHARACTERS);
    };
    child.stdout?.on('data', gather);
    child.stderr?.on('data', gather);
    child.on('message', (message: FromChild) => {
      if ('state' in message) this.#state = message.state;
      else this.#failure = message.failed;
    });
    this.#ended = new Promise((resolve) => {
      child.once('exit', (code, signal) => {
        alive.delete(child);
        this.#end = signal ?? String(code);
        resolve(this.#end);
      });
      child.once('error', (error) => {
        alive.delete(child);
        resolve(error.message);
      });
    });
    child.send({ configuration, marker: this.#marker } satisfies ToChild, () => undefined);
  }

  /** `markerDirectory` must exist. Does not wait: see `running`. */
  static start(configuration: ProcessConfiguration, markerDirectory: string): ApplicationProcess {
    return new ApplicationProcess(configuration, markerDirectory);
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  get state(): ApplicationState {
    return this.#state;
  }

  /** The error with which the application has failed. */
  get failure(): string | undefined {
    return this.#failure;
  }

  /** The end of what it has logged. */
  get log(): string {
    return this.#log;
  }

  get hasExited(): boolean {
    return this.#end !== undefined;
  }

  /** Resolves when it has partitions and works on them (or, without a topic to map, when the sink stage has been started). */
  async running(deadlineMs = START_DEADLINE_MS): Promise<void> {
    await this.#until(() => this.#state === 'running', 'running', deadlineMs);
  }

  /** Resolves when the fail point was reached. Throws if the process ends before that. */
  async reached(deadlineMs = REACH_DEADLINE_MS): Promise<void> {
    const { name, nth = 1 } = this.configuration.failPoint ?? { name: 'no fail point' };
    await this.#until(() => existsSync(this.#marker), `at ${name} for the ${nth}. time`, deadlineMs);
  }

  /** Resolves with the signal or the exit code that ended it. */
  async exited(deadlineMs = STOP_DEADLINE_MS): Promise<string> {
    const late = new AbortController();
    try {
      return await Promise.race([
        this.#ended,
        sleep(deadlineMs, undefined, { signal: late.signal }).then(() => {
          throw new Error(`${this.#name} is still there after ${deadlineMs} ms.\n${this.#log}`);
        }),
      ]);
    } finally {
      late.abort();
    }
  }

  /** SIGKILL: no handler runs and nothing is flushed. Also ends a stopped process. */
  async kill(): Promise<void> {
    if (this.hasExited) return;
    this.#child.kill('SIGKILL');
    await this.exited();
  }

  /** SIGSTOP: the process stands still, its connections stay open. */
  pause(): void {
    this.#child.kill('SIGSTOP');
  }

  /** SIGCONT. */
  resume(): void {
    this.#child.kill('SIGCONT');
  }

  /** Lets a process go on that waits at its fail point. */
  release(): void {
    this.#child.send('release' satisfies ToChild, () => undefined);
  }

  /** Closes the application in order, and throws if it had failed or did not end well. */
  async stop(deadlineMs = STOP_DEADLINE_MS): Promise<void> {
    if (!this.hasExited) this.#child.send('stop' satisfies ToChild, () => undefined);
    const end = await this.exited(deadlineMs);
    if (end !== '0' || this.#failure !== undefined) throw new Error(`${this.#name} ended with ${end}: ${this.#failure}\n${this.#log}`);
  }

  /** Throws if the application has failed, or the process has ended in another way than by SIGKILL or in order. */
  check(): void {
    const ended = this.#end !== undefined && this.#end !== '0' && this.#end !== 'SIGKILL';
    if (ended || this.#failure !== undefined) throw new Error(`${this.#name} has failed: ${this.#failure ?? this.#end}\n${this.#log}`);
  }

  get #name(): string {
    return `${this.configuration.applicationId}/${this.configuration.instanceId} (pid ${this.pid})`;
  }

  async #until(condition: () => boolean, what: string, deadlineMs: number): Promise<void> {
    const deadline = performance.now() + deadlineMs;
    while (!condition()) {
      if (this.hasExited) {
        // It may have got there with its last step.
        if (condition()) return;
        throw new Error(`${this.#name} ended (${this.#end}) before it was ${what}: ${this.#failure}\n${this.#log}`);
      }
      if (performance.now() > deadline) throw new Error(`${this.#name} was not ${what} within ${deadlineMs} ms\n${this.#log}`);
      await sleep(LOOK_MS);
    }
  }
}
