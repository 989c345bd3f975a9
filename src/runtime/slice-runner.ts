import type { Producer } from '../kafka/port.ts';
import type { Clock } from '../model/clock.ts';
import { FatalError } from '../model/errors.ts';
import type { FailPoints } from '../model/fail-point.ts';
import type { CommitCycle } from './commit-cycle.ts';
import { PoisonRecordError } from './record-failure.ts';
import type { WorkStep } from './remedy.ts';
import { SliceBudget } from './slice-budget.ts';
import type { Interruption, Task } from './task.ts';

export interface SliceRunnerOptions {
  readonly applicationId: string;
  readonly producer: Producer;
  readonly cycle: CommitCycle;
  readonly maxRecords: number;
  readonly maxMs: number;
  readonly clock: Clock;
  /** Lets sockets and timers run once. */
  readonly turn: () => Promise<void>;
  readonly failPoints: FailPoints | undefined;
}

const SLICE_BYTES = 4 * 1024 * 1024;

/** Processes what fits between two turns of the event loop, from all tasks that have records. */
export class SliceRunner {
  /** Where `run` is, or where it failed. */
  step: WorkStep = 'process';
  readonly #options: SliceRunnerOptions;
  readonly #budget: SliceBudget;
  #first = 0;

  constructor(options: SliceRunnerOptions) {
    const { clock, producer, maxRecords, maxMs } = options;
    this.#options = options;
    this.#budget = new SliceBudget(clock, producer, { records: maxRecords, ms: maxMs, bytes: SLICE_BYTES });
  }

  /** Each slice begins with another task. Throws errors of the producer, and PoisonRecordError where a record's policy is `fail`. */
  async run(tasks: readonly Task[]): Promise<void> {
    const { producer, cycle, failPoints, turn } = this.#options;
    this.step = 'process';
    cycle.begin();
    this.#budget.start();
    const bytesBefore = producer.bufferedBytes;
    try {
      for (let i = 0; i < tasks.length; i++) {
        const task = tasks[(this.#first + i) % tasks.length]!;
        let interruption = task.process(this.#budget);
        while (interruption !== undefined) interruption = await this.#resolve(task, interruption);
      }
    } finally {
      // Acknowledgements come in between slices, so that the difference is what was appended.
      cycle.processed(this.#budget.taken, Math.max(0, producer.bufferedBytes - bytesBefore));
    }
    this.#first++;
    if (failPoints !== undefined) await failPoints('mid-processing');
    await producer.ready();
    await turn();
  }

  async #resolve(task: Task, interruption: Interruption): Promise<Interruption | undefined> {
    if (interruption.kind === 'failed') {
      // It was taken from the budget, but it was not done.
      this.#budget.taken--;
      throw new PoisonRecordError(interruption.failure, `application '${this.#options.applicationId}'`);
    }
    // The record waits for its topic, and everything behind it with it, so that order is kept.
    this.step = 'load-topic';
    try {
      await this.#options.producer.loadTopics([interruption.topic]);
    } catch (error) {
      if (!(error instanceof FatalError)) throw error;
      this.step = 'process';
      return task.refuse(error);
    }
    this.step = 'process';
    return task.resume();
  }
}
