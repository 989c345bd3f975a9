import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { WorkerConfiguration } from './worker.ts';

const STOP_DEADLINE_MS = 20_000;
const START_DEADLINE_MS = 30_000;

interface Worker {
  readonly instanceId: string;
  readonly process: ChildProcess;
  readonly started: Promise<void>;
  /** Set when this fleet has ended it on purpose. */
  expected: boolean;
}

/** The worker processes of one column. One that is killed is started again under its name; one that fails by itself fails the run. */
export class Fleet {
  readonly #configuration: Omit<WorkerConfiguration, 'instanceId'>;
  readonly #workers = new Map<string, Worker>();
  #kills = 0;
  #failure: Error | undefined;

  constructor(configuration: Omit<WorkerConfiguration, 'instanceId'>, size: number) {
    this.#configuration = configuration;
    for (let i = 0; i < size; i++) this.#spawn(`worker-${i}`);
  }

  get kills(): number {
    return this.#kills;
  }

  /** Throws if a worker has ended by itself. */
  check(): void {
    if (this.#failure !== undefined) throw this.#failure;
  }

  async started(): Promise<void> {
    await Promise.all([...this.#workers.values()].map(({ started }) => started));
  }

  /** SIGKILL: no handler runs, nothing is flushed. The successor starts at once. */
  async kill(index: number): Promise<void> {
    const worker = [...this.#workers.values()][index % this.#workers.size];
    if (worker === undefined) return;
    await end(worker, 'SIGKILL');
    this.#kills++;
    this.#spawn(worker.instanceId);
  }

  /** Lets all finish what they have in hand. */
  async stop(): Promise<void> {
    await Promise.all(
      [...this.#workers.values()].map(async (worker) => {
        worker.expected = true;
        if (worker.process.exitCode !== null) return;
        const exited = once(worker.process, 'exit', { signal: AbortSignal.timeout(STOP_DEADLINE_MS) });
        worker.process.send('stop', () => undefined);
        await exited.catch(async () => {
          await end(worker, 'SIGKILL');
          throw new Error(`${worker.instanceId} did not stop within ${STOP_DEADLINE_MS} ms`);
        });
      }),
    );
    this.#workers.clear();
  }

  /** For the way out after a failure or Ctrl-C. */
  async abandon(): Promise<void> {
    await Promise.all([...this.#workers.values()].map(async (worker) => await end(worker, 'SIGKILL')));
    this.#workers.clear();
  }

  #spawn(instanceId: string): void {
    const child = fork(fileURLToPath(new URL('worker.ts', import.meta.url)), { execArgv: ['--import', 'tsx'] });
    const started = once(child, 'message', { signal: AbortSignal.timeout(START_DEADLINE_MS) }).then(() => undefined);
    const worker: Worker = { instanceId, process: child, started, expected: false };
    // Who is killed while it starts never reports; only `started()` wants to know.
    started.catch(() => undefined);
    child.once('exit', (code, signal) => {
      if (!worker.expected) this.#failure ??= new Error(`${instanceId} ended by itself (${signal ?? `exit code ${code}`})`);
    });
    child.once('error', (error) => {
      this.#failure ??= error;
    });
    child.send({ ...this.#configuration, instanceId } satisfies WorkerConfiguration, () => undefined);
    this.#workers.set(instanceId, worker);
  }
}

async function end(worker: Worker, signal: NodeJS.Signals): Promise<void> {
  worker.expected = true;
  const child = worker.process;
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill(signal);
  await exited;
}
