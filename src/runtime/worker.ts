import type { ConsumerEvent, FetchedBatch, GroupConsumer, GroupMetadata } from '../kafka/port.ts';
import type { Clock, Random } from '../model/clock.ts';
import { StaleGenerationError } from '../model/errors.ts';
import type { FailPoints } from '../model/fail-point.ts';
import type { TopicPartition } from '../model/topic-partition.ts';
import type { Log } from '../ops/log.ts';
import type { Metrics, MetricsSource, PartitionLag } from '../ops/metrics.ts';
import { Assignment } from './assignment.ts';
import { RecordCollector } from './collector.ts';
import type { CommitProtocol } from './commit.ts';
import { CommitCycle } from './commit-cycle.ts';
import { FailureLog } from './failure-log.ts';
import { offsetInRange, type OutOfRange } from './offset-range.ts';
import type { Settings } from './options.ts';
import { FailurePolicies, PoisonRecordError } from './record-failure.ts';
import { Recovery } from './recovery.ts';
import { errorCode, type WorkStep } from './remedy.ts';
import { SliceRunner } from './slice-runner.ts';
import { startPartitions } from './start-position.ts';
import type { Task } from './task.ts';
import type { TaskPlan } from './task-plan.ts';

export interface WorkerOptions {
  readonly settings: Settings;
  readonly plan: TaskPlan;
  readonly instanceId: string;
  readonly consumer: GroupConsumer;
  /** `group` gives the metadata of the generation that the worker's records belong to. */
  readonly protocol: (group: () => GroupMetadata) => CommitProtocol;
  readonly clock: Clock;
  readonly random: Random;
  /** Lets sockets and timers run once. */
  readonly turn: () => Promise<void>;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly failPoints?: FailPoints | undefined;
  readonly onState?: (state: WorkerState) => void;
}

/** `rebalancing`: no assignment, or one whose partitions have not all started. */
export type WorkerState = 'rebalancing' | 'running';

/** The longest poll while there is nothing to do; a stop is noticed after it at the latest. */
const IDLE_POLL_MS = 100;
/** At-most-once: how long a rebalance waits for records whose offset is committed already. */
const DRAIN_MS = 5_000;

/**
 * The engine's one loop: poll, handle what happened, process, commit when due. Everything that goes wrong comes to `#recover`; what has to be
 * repeated is one attempt per step, so that the group is polled also while something is being mended.
 */
export class Worker implements MetricsSource {
  readonly #options: WorkerOptions;
  readonly #settings: Settings;
  readonly #consumer: GroupConsumer;
  readonly #protocol: CommitProtocol;
  readonly #assignment: Assignment;
  readonly #cycle: CommitCycle;
  readonly #recovery: Recovery;
  readonly #slices: SliceRunner;
  readonly #failureLog: FailureLog;
  readonly #stop = new AbortController();

  readonly #events: ConsumerEvent[] = [];
  #state: WorkerState | undefined;
  /** Between `revoked` or `lost` and `assigned` nothing is processed. */
  #rebalancing = true;
  #generation = -1;
  #assigned: readonly TopicPartition[] = [];
  /** Set when a broker said that the group went on without this member: by then, the consumer should have said so itself. */
  #rejoinBy: number | undefined;
  /** Whether this worker ever had a producer epoch. */
  #initialised = false;
  #lastPollAt: number | undefined;

  constructor(options: WorkerOptions) {
    const { settings, clock, random, metrics, consumer, log, instanceId } = options;
    this.#options = options;
    this.#settings = settings;
    this.#consumer = consumer;
    this.#failureLog = new FailureLog(log);
    const protocol = options.protocol(() => this.#groupMetadata());
    const collector = new RecordCollector(protocol.producer, random, (topic) => metrics.produced(topic));
    const assignment = new Assignment(
      options.plan,
      {
        applicationId: settings.applicationId,
        collector,
        policies: new FailurePolicies(settings.onDeserialisationError, settings.onProcessingError),
        deadLetterTopic: settings.deadLetterTopic,
        clock,
        failureCounters: (topic) => metrics.failures(topic),
      },
      (topic) => metrics.consumed(topic),
    );
    const { commitIntervalMs, commitBytes, transactionTimeoutMs, retryTimeoutMs } = settings;
    const cycle = new CommitCycle({ protocol, assignment, commitIntervalMs, commitBytes, clock, metrics });
    this.#protocol = protocol;
    this.#assignment = assignment;
    this.#cycle = cycle;
    this.#recovery = new Recovery({
      protocol,
      assignment,
      collector,
      cycle,
      consumer,
      instanceId,
      transactionTimeoutMs,
      retryTimeoutMs,
      clock,
      random,
      log,
      metrics,
    });
    this.#slices = new SliceRunner({
      applicationId: settings.applicationId,
      producer: protocol.producer,
      cycle,
      maxRecords: settings.maxSliceRecords,
      maxMs: settings.maxSliceMs,
      clock,
      turn: options.turn,
      failPoints: options.failPoints,
    });
  }

  /** Works until `requestStop`, then commits. Rejects with the error that stops the application. Leaves the connections open. */
  async run(): Promise<void> {
    this.#options.metrics.attach(this);
    this.#enter('rebalancing');
    try {
      while (!this.#stop.signal.aborted) await this.step();
      if (this.#protocol.commitsBeforeProcessing) await this.#drain();
      if (!(await this.#commit())) await this.#settle();
    } catch (error) {
      if (this.#initialised) await this.#settle();
      throw error;
    } finally {
      this.#options.metrics.detach(this);
    }
  }

  /** `run` ends after the step that it is in. */
  requestStop(): void {
    this.#stop.abort();
  }

  async step(): Promise<void> {
    const wait = this.#pollWaitMs();
    await this.#poll(wait);
    await this.#handleEvents();
    await this.#mend();
    const processed = await this.#process();
    await this.#commitWhenDue();
    // A poll that does not wait may answer without the event loop having run.
    if (wait === 0 && !processed) await this.#options.turn();
  }

  // ------------------------------------------------------------------------------------------------------------------ poll

  async #poll(waitMs: number): Promise<void> {
    this.#lastPollAt = this.#now();
    try {
      const events = await this.#consumer.poll(waitMs);
      this.#recovery.polled();
      for (const event of events) this.#events.push(event);
      if (events.length > 0 && this.#options.failPoints !== undefined) await this.#options.failPoints('after-poll');
    } catch (error) {
      await this.#recover(error, 'poll');
      await this.#sleep(this.#recovery.resumeAt - this.#now());
    }
  }

  #pollWaitMs(): number {
    const now = this.#now();
    if (this.#canProcess(now) && this.#hasWork()) return 0;
    const { resumeAt } = this.#recovery;
    let wait = IDLE_POLL_MS;
    if (this.#needsMending() || now < resumeAt) wait = Math.min(wait, resumeAt - now);
    else if (this.#cycle.dirty && this.#canProcess(now)) wait = Math.min(wait, this.#cycle.dueAt - now);
    return Math.max(0, Math.ceil(wait));
  }

  async #handleEvents(): Promise<void> {
    for (let event = this.#events.shift(); event !== undefined; event = this.#events.shift()) {
      switch (event.type) {
        case 'batch':
          this.#take(event.batch);
          break;
        case 'assigned':
          await this.#onAssigned(event.generation, event.partitions, event.retained);
          break;
        case 'revoked':
          await this.#onRevoked(event.partitions);
          break;
        case 'lost':
          await this.#onLost(event.partitions, event.reason);
          break;
        case 'out-of-range':
          this.#onOutOfRange(event);
          break;
      }
    }
  }

  #take(batch: FetchedBatch): void {
    // Of a partition that was dropped after an error: it is read again from its committed offset.
    const input = this.#assignment.input(batch);
    if (input === undefined || input.state === 'new') return;
    if (this.#protocol.commitsBeforeProcessing) input.hold(batch);
    else input.add(batch);
    this.#cycle.positionsMoved();
    if (!input.paused && input.bufferedBytes >= this.#settings.maxBufferedBytes) {
      input.paused = true;
      this.#consumer.pause([input]);
    }
  }

  /** Partitions that were paused at the high-water mark go on at half of it. */
  #resumePartitions(): void {
    for (const input of this.#assignment.inputs) {
      if (!input.paused || input.bufferedBytes > this.#settings.maxBufferedBytes / 2) continue;
      input.paused = false;
      this.#consumer.resume([input]);
    }
  }

  // -------------------------------------------------------------------------------------------------------------- rebalance

  async #onAssigned(generation: number, partitions: readonly TopicPartition[], retained: readonly TopicPartition[]): Promise<void> {
    // An adapter that keeps its promise has said `revoked` or `lost` before, and nothing is open.
    if (!this.#rebalancing && this.#cycle.records > 0) await this.#recovery.rollBack();
    const dropped = this.#assignment.replace(partitions, retained);
    this.#generation = generation;
    this.#assigned = partitions;
    this.#rebalancing = false;
    this.#rejoinBy = undefined;
    this.#options.metrics.rebalances++;
    const tasks = this.#assignment.tasks.map((task) => task.id);
    const starting = this.#assignment.starting.length;
    this.#options.log.info({ generation, tasks, partitions: partitions.length, starting, dropped: dropped.length }, 'partitions assigned');
    this.#announce();
  }

  /** This member is still the owner: what is done is committed, and the next poll lets the others go on. */
  async #onRevoked(partitions: readonly TopicPartition[]): Promise<void> {
    if (this.#protocol.commitsBeforeProcessing) await this.#drain();
    const { records } = this.#cycle;
    const committed = await this.#commit();
    this.#rebalancing = true;
    this.#rejoinBy = undefined;
    this.#enter('rebalancing');
    this.#options.log.info({ generation: this.#generation, partitions: partitions.length, records, committed }, 'partitions revoked');
  }

  /** Somebody else may own them already: nothing that was done here may be committed. */
  async #onLost(partitions: readonly TopicPartition[], reason: string): Promise<void> {
    this.#options.log.warn({ generation: this.#generation, partitions: partitions.length, reason }, 'partitions lost');
    for (const partition of partitions) {
      const input = this.#assignment.input(partition);
      if (input !== undefined) this.#assignment.drop(input);
    }
    this.#rebalancing = true;
    this.#rejoinBy = undefined;
    this.#enter('rebalancing');
    await this.#recovery.rollBack();
  }

  #onOutOfRange(event: OutOfRange): void {
    const input = this.#assignment.input(event);
    if (input === undefined || input.state === 'new') return;
    const offset = offsetInRange(event, this.#settings.offsetOutOfRange, this.#options.log);
    input.queue.continueAt(offset);
    this.#cycle.positionsMoved();
    this.#consumer.startFrom(input, offset);
  }

  // ---------------------------------------------------------------------------------------------------------- mend and start

  #needsMending(): boolean {
    return this.#recovery.needsInit || (!this.#rebalancing && this.#assignment.starting.length > 0);
  }

  /**
   * The order is the protocol: first a producer epoch of our own, which ends what a predecessor left open; then the committed offsets; then the
   * first record. One attempt per step.
   */
  async #mend(): Promise<void> {
    const now = this.#now();
    if (this.#rejoinBy !== undefined && now >= this.#rejoinBy) {
      // The consumer saw nothing, so it was a passing fault: begin again from what is committed.
      this.#rejoinBy = undefined;
      this.#assignment.replace(this.#assigned, []);
      this.#rebalancing = false;
    }
    if (!this.#needsMending() || now < this.#recovery.resumeAt) return;

    if (this.#recovery.needsInit) {
      try {
        await this.#protocol.init();
      } catch (error) {
        await this.#recover(error, 'init');
        return;
      }
      this.#recovery.needsInit = false;
      this.#initialised = true;
    }
    try {
      if (!this.#rebalancing) await this.#start();
    } catch (error) {
      await this.#recover(error, 'read-offsets');
      return;
    }
    this.#announce();
  }

  async #start(): Promise<void> {
    if (this.#assignment.starting.length === 0) return;
    const { confirmed, dropped } = await startPartitions(this.#consumer, this.#assignment, this.#settings.startFrom);
    this.#cycle.positionsMoved();
    if (dropped > 0) this.#options.metrics.aborts++;
    if (confirmed + dropped > 0) this.#options.log.info({ confirmed, dropped }, 'recovered: the committed offsets tell what was committed');
  }

  // ---------------------------------------------------------------------------------------------------------------- process

  #canProcess(now: number): boolean {
    return !this.#rebalancing && !this.#recovery.needsInit && now >= this.#recovery.resumeAt;
  }

  #readyTasks(): readonly Task[] {
    return this.#assignment.tasks.filter((task) => task.runnable && task.hasRecords);
  }

  #hasWork(): boolean {
    return (
      this.#assignment.inputs.some((input) => input.state === 'running' && input.heldEnd !== undefined) || this.#readyTasks().length > 0
    );
  }

  /** Whether there was something to process. */
  async #process(): Promise<boolean> {
    if (!this.#canProcess(this.#now())) return false;
    if (this.#protocol.commitsBeforeProcessing && !(await this.#release())) return false;
    const tasks = this.#readyTasks();
    if (tasks.length > 0) await this.#processSlice(tasks);
    this.#resumePartitions();
    return tasks.length > 0;
  }

  async #processSlice(tasks: readonly Task[]): Promise<void> {
    try {
      await this.#slices.run(tasks);
    } catch (error) {
      if (error instanceof PoisonRecordError) await this.#commitBefore(error);
      await this.#recover(error, this.#slices.step);
    }
    this.#failureLog.tell(this.#options.metrics.allFailures(), this.#now());
  }

  /** What was done before the record is committed, so that a restart begins with it. Should that fail, a restart begins earlier. */
  async #commitBefore(poison: PoisonRecordError): Promise<void> {
    try {
      await this.#commit();
    } catch (error) {
      this.#options.log.error({ code: errorCode(error), reason: error instanceof Error ? error.message : String(error) }, 'commit failed');
      throw poison;
    }
  }

  /** At-most-once: commits the positions behind what is there, once all that was released before is processed. */
  async #release(): Promise<boolean> {
    const inputs = this.#assignment.inputs.filter((input) => input.state === 'running' && input.heldEnd !== undefined);
    if (inputs.length === 0 || this.#readyTasks().length > 0) return true;
    try {
      await this.#protocol.release(
        inputs.map(({ topic, partition, heldEnd }) => ({ topic, partition, offset: heldEnd ?? 0n, metadata: '' })),
      );
    } catch (error) {
      await this.#recover(error, this.#protocol.step);
      return false;
    }
    for (const input of inputs) input.release();
    return true;
  }

  /** At-most-once: what is committed is processed before the partitions are given away, for nobody else will. */
  async #drain(): Promise<void> {
    const deadline = this.#now() + DRAIN_MS;
    for (;;) {
      const now = this.#now();
      const tasks = this.#readyTasks();
      if (tasks.length === 0 || now >= deadline || !this.#canProcess(now)) return;
      await this.#processSlice(tasks);
    }
  }

  // ----------------------------------------------------------------------------------------------------------------- commit

  async #commitWhenDue(): Promise<void> {
    const now = this.#now();
    if (this.#cycle.dirty && this.#canProcess(now) && now >= this.#cycle.dueAt) await this.#commit();
  }

  /** Whether everything that was done is committed. Does not throw but for what stops the application. */
  async #commit(): Promise<boolean> {
    if (!this.#cycle.dirty) return true;
    if (this.#recovery.needsInit) return false;
    try {
      await this.#cycle.commit();
    } catch (error) {
      await this.#recover(error, this.#protocol.step);
      return false;
    }
    this.#recovery.committed();
    return true;
  }

  /** Of the generation that the records were read in, and of no later one. */
  #groupMetadata(): GroupMetadata {
    const group = this.#consumer.groupMetadata();
    if (group.generation === this.#generation) return group;
    throw new StaleGenerationError(
      `the group is in generation ${group.generation}, but the records were read in generation ${this.#generation}`,
    );
  }

  async #recover(error: unknown, step: WorkStep): Promise<void> {
    const remedy = await this.#recovery.recover(error, step);
    if (remedy === 'rejoin') {
      this.#rebalancing = true;
      this.#rejoinBy = this.#now() + this.#settings.sessionTimeoutMs;
    }
    if (this.#rebalancing || this.#needsMending()) this.#enter('rebalancing');
  }

  /** This worker ends, and no reader shall have to wait for the time-out of what is open: an unknown outcome is settled by a new epoch. */
  async #settle(): Promise<void> {
    if (this.#settings.guarantee !== 'exactly-once') return;
    try {
      if (this.#recovery.needsInit) await this.#protocol.init();
      else await this.#protocol.abort();
    } catch (error) {
      this.#options.log.warn(
        { code: errorCode(error), reason: error instanceof Error ? error.message : String(error) },
        'an open transaction is left to its time-out, or to the next process with this instance id',
      );
    }
  }

  // ------------------------------------------------------------------------------------------------------------ observation

  tasks(): number {
    return this.#assignment.tasks.length;
  }

  lags(): readonly PartitionLag[] {
    return this.#assignment.inputs.map(({ topic, partition, lag }) => ({ topic, partition, lag }));
  }

  lastPollAgeMs(): number | undefined {
    return this.#lastPollAt === undefined ? undefined : this.#now() - this.#lastPollAt;
  }

  #announce(): void {
    if (this.#rebalancing || this.#needsMending()) return;
    if (this.#state !== 'running') {
      this.#options.log.info({ generation: this.#generation, tasks: this.#assignment.tasks.length }, 'running');
    }
    this.#enter('running');
  }

  #enter(state: WorkerState): void {
    if (this.#state === state) return;
    this.#state = state;
    this.#options.onState?.(state);
  }

  #now(): number {
    return this.#options.clock.monotonic();
  }

  async #sleep(ms: number): Promise<void> {
    if (ms <= 0) return;
    try {
      await this.#options.clock.sleep(ms, this.#stop.signal);
    } catch {
      // A stop ends the wait.
    }
  }
}
