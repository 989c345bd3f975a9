import type { ConsumerEvent, GroupConsumer, KafkaClient } from '../kafka/port.ts';
import type { Clock, Random } from '../model/clock.ts';
import { ConfigurationError } from '../model/errors.ts';
import type { FailPointName, FailPoints } from '../model/fail-point.ts';
import type { TopicPartition } from '../model/topic-partition.ts';
import type { Log } from '../ops/log.ts';
import type { Metrics, MetricsSource, PartitionLag, SinkCounters } from '../ops/metrics.ts';
import type { SinkWriter } from '../sink/port.ts';
import { eventLoopTurn } from '../system/event-loop.ts';
import type { SinkStage } from '../topology/topology.ts';
import { TaskAssignor } from './assignor.ts';
import { Backoff } from './backoff.ts';
import { endsWithin } from './deadline.ts';
import type { Settings } from './options.ts';
import { FailurePolicies } from './record-failure.ts';
import { errorCode, remedyFor, type WorkStep } from './remedy.ts';
import { Signal } from './signal.ts';
import { SinkAssignment } from './sink-assignment.ts';
import { SinkHealth } from './sink-health.ts';
import { SinkOffsets } from './sink-offsets.ts';
import { openSink, requireSourceTopics, type SinkOpeningParts } from './sink-opening.ts';
import type { SinkPartitionHost } from './sink-partition.ts';
import { type GroupStart, SinkPositions } from './sink-positions.ts';
import { DEFAULT_SINK_TUNING, type SinkTuning } from './sink-tuning.ts';
import { TaskPlan } from './task-plan.ts';
import { WriteSlots } from './write-slots.ts';

/** Those of the application's settings that a sink stage goes by. */
export type SinkWorkerSettings = Pick<
  Settings,
  | 'onDeserialisationError'
  | 'onProcessingError'
  | 'startFrom'
  | 'offsetOutOfRange'
  | 'maxBufferedBytes'
  | 'maxSliceRecords'
  | 'sessionTimeoutMs'
  | 'heartbeatIntervalMs'
  | 'maxPollIntervalMs'
  | 'metadataMaxAgeMs'
  | 'requestTimeoutMs'
  | 'retryTimeoutMs'
  | 'fetch'
>;

export interface SinkWorkerOptions {
  readonly stage: SinkStage;
  readonly applicationId: string;
  /** The `group.instance.id`, under static membership. */
  readonly groupInstanceId?: string;
  readonly client: KafkaClient;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly failPoints?: FailPoints;
  readonly options: SinkWorkerSettings;
  readonly tuning?: Partial<SinkTuning>;
  /** Lets sockets and timers run once. Default: the machine's event loop. */
  readonly turn?: () => Promise<void>;
}

/** The longest poll while there is nothing to do. */
const IDLE_POLL_MS = 100;
/** While something in this process is about to change: a claim, a full buffer that empties, an offset to be committed. */
const BUSY_POLL_MS = 5;
/** Of the time for stopping, so much is kept for committing offsets and closing connections. */
const STOP_RESERVE_MS = 1_000;

/**
 * Runs one sink stage: reads committed records in a group of its own, `<application id>-<stage>`, and hands them to the sink in batches. One loop
 * polls, and does everything else that concerns the group, between polls; each partition writes beside it, so that a target that is down
 * for minutes costs neither the membership nor memory.
 */
export class SinkWorker implements MetricsSource {
  readonly #options: SinkWorkerOptions;
  readonly #settings: SinkWorkerSettings;
  readonly #tuning: SinkTuning;
  readonly #plan: TaskPlan;
  readonly #counters: SinkCounters;
  readonly #health: SinkHealth;
  readonly #backoff: Backoff;
  readonly #signal: Signal;
  readonly #positions: SinkPositions;
  readonly #offsets: SinkOffsets;
  readonly #assignment: SinkAssignment;
  readonly #stop = new AbortController();
  /** Assigned, but it is not known yet where to begin. */
  #starting: TopicPartition[] = [];
  #writer: SinkWriter<unknown, unknown> | undefined;
  #consumer: GroupConsumer | undefined;
  #host: SinkPartitionHost | undefined;
  #assigned: readonly TopicPartition[] = [];
  /** Between `revoked` or `lost` and `assigned`. */
  #rebalancing = true;
  /** Set when a broker said that the group went on without this member: by then, the consumer should have said so itself. */
  #rejoinBy: number | undefined;
  #failure: { readonly error: unknown } | undefined;
  /** After a failure nothing but polling is done before this time. */
  #resumeAt = 0;
  #lastPollAt: number | undefined;
  #lastCommitAt: number;
  #stopBy = Infinity;
  #running: Promise<void> | undefined;

  /** Throws ConfigurationError where the sink cannot do what the options ask for. */
  constructor(options: SinkWorkerOptions) {
    const { stage, applicationId, clock, random, log, metrics, options: settings } = options;
    const asksForDeadLetters = settings.onDeserialisationError === 'dead-letter' || settings.onProcessingError === 'dead-letter';
    if (asksForDeadLetters && stage.sink.sink.keepsDeadLetters !== true) {
      throw new ConfigurationError(
        `stage '${stage.name}' of '${applicationId}': the policy for failing records is 'dead-letter', but its ${stage.sink.sink.kind} sink keeps none. ` +
          `Let the sink keep them, or choose 'fail' or 'skip'`,
      );
    }
    this.#options = options;
    this.#settings = settings;
    this.#tuning = { ...DEFAULT_SINK_TUNING, ...options.tuning };
    this.#plan = new TaskPlan([{ id: 0, sources: stage.sources, processors: stage.processors, sinks: [], steps: stage.processors }]);
    this.#counters = metrics.sink(stage.name);
    this.#health = new SinkHealth(clock, log);
    this.#backoff = new Backoff(settings.retryTimeoutMs, random);
    this.#signal = new Signal(clock);
    this.#positions = new SinkPositions({
      applicationId,
      stage: stage.name,
      groupId: this.groupId,
      startFrom: settings.startFrom,
      offsetOutOfRange: settings.offsetOutOfRange,
      log,
    });
    this.#offsets = new SinkOffsets(options.failPoints, () => this.#signal.wake());
    this.#assignment = new SinkAssignment({
      stage,
      plan: this.#plan,
      policies: new FailurePolicies(settings.onDeserialisationError, settings.onProcessingError),
      limits: { records: stage.sink.sink.maxBatchRecords, bytes: this.#tuning.maxBatchBytes, sliceRecords: settings.maxSliceRecords },
      maxBufferedBytes: settings.maxBufferedBytes,
      metrics,
      onDrop: (partition) => this.#offsets.refuse(partition),
    });
    this.#lastCommitAt = clock.monotonic();
  }

  get groupId(): string {
    return `${this.#options.applicationId}-${this.#options.stage.name}`;
  }

  tasks(): number {
    return this.#assignment.size;
  }

  lags(): readonly PartitionLag[] {
    return this.#assignment.partitions.map(({ topic, partition, lag }) => ({ topic, partition, lag }));
  }

  lastPollAgeMs(): number | undefined {
    return this.#lastPollAt === undefined ? undefined : this.#now() - this.#lastPollAt;
  }

  /** Works until `stop`. Rejects with the error that no retry mends; then, too, everything is closed. */
  async run(): Promise<void> {
    this.#running ??= this.#run();
    await this.#running;
  }

  /** Writes what is in hand, commits, leaves the group and closes all connections; cuts off what takes longer than `deadlineMs`. Never rejects. */
  async stop(deadlineMs: number): Promise<void> {
    this.#stopBy = Math.min(this.#stopBy, this.#now() + deadlineMs);
    this.#stop.abort();
    this.#signal.wake();
    if (this.#running !== undefined) await endsWithin(this.#options.clock, deadlineMs + STOP_RESERVE_MS, this.#running);
  }

  async #run(): Promise<void> {
    const { metrics } = this.#options;
    metrics.attach(this);
    try {
      await this.start();
      while (!this.#stop.signal.aborted) await this.step();
    } finally {
      // After an error nobody has said how long closing may take.
      if (this.#stopBy === Infinity) this.#stopBy = this.#now() + this.#tuning.drainMs + STOP_RESERVE_MS;
      await this.#close();
      metrics.detach(this);
    }
  }

  /** Opens the sink and makes ready to join the group, as `run` does first. Returns early when stopped. */
  async start(): Promise<void> {
    const opening: SinkOpeningParts = {
      ...this.#options,
      tuning: this.#tuning,
      counters: this.#counters,
      health: this.#health,
      backoff: this.#backoff,
      stop: this.#stop.signal,
    };
    await requireSourceTopics(opening, this.#plan.topics);
    const writer = await openSink(opening);
    if (writer === undefined) return;
    this.#writer = writer;
    this.#host = this.#hostWith(writer);
    this.#consumer = this.#newConsumer();
  }

  /** One turn of the loop of `run`. Throws the error that stops the stage. */
  async step(): Promise<void> {
    const consumer = this.#consumer;
    const host = this.#host;
    if (consumer === undefined || host === undefined) return;
    await this.#poll(consumer);
    if (this.#failure !== undefined) throw this.#failure.error;
    const now = this.#now();
    if (this.#rejoinBy !== undefined && now >= this.#rejoinBy) {
      // The consumer saw nothing, so it was a passing fault: claim everything anew.
      this.#rejoinBy = undefined;
      this.#starting = [...this.#assigned];
      this.#rebalancing = false;
    }
    if (this.#rebalancing || now < this.#resumeAt) return;
    await this.#findStarts(consumer, host);
    await this.#movePartitions(consumer);
    this.#assignment.resume(consumer);
    await this.#commitRequested(consumer);
    if (this.#now() - this.#lastCommitAt >= this.#tuning.offsetCommitIntervalMs) await this.#commitApplied(consumer);
  }

  #newConsumer(): GroupConsumer {
    const { sessionTimeoutMs, heartbeatIntervalMs, maxPollIntervalMs, metadataMaxAgeMs, requestTimeoutMs, fetch } = this.#settings;
    const { stage, client, groupInstanceId } = this.#options;
    return client.groupConsumer({
      groupId: this.groupId,
      subscription: { topics: this.#plan.topics, patterns: this.#plan.patterns },
      // The steps of a stage may change from one version to the next without harm: only its name stands for it.
      assignor: new TaskAssignor(this.#plan, stage.name),
      sessionTimeoutMs,
      heartbeatIntervalMs,
      maxPollIntervalMs,
      metadataMaxAgeMs,
      fetch: { ...fetch, isolation: 'read-committed' },
      ...(requestTimeoutMs === undefined ? {} : { requestTimeoutMs }),
      ...(groupInstanceId === undefined ? {} : { groupInstanceId }),
    });
  }

  #hostWith(writer: SinkWriter<unknown, unknown>): SinkPartitionHost {
    const { clock, random, log, turn, stage } = this.#options;
    return {
      writer,
      slots: new WriteSlots(writer.concurrency ?? 1),
      health: this.#health,
      counters: this.#counters,
      tuning: this.#tuning,
      clock,
      random,
      log,
      turn: turn ?? eventLoopTurn,
      commitsFirst: stage.sink.sink.mode === 'at-most-once',
      commitNow: async (partition, offset) => await this.#offsets.request(partition, offset),
      wake: () => this.#signal.wake(),
      fail: (error) => {
        this.#failure ??= { error };
        this.#signal.wake();
      },
    };
  }

  // ------------------------------------------------------------------------------------------------------------------- loop

  async #poll(consumer: GroupConsumer): Promise<void> {
    this.#lastPollAt = this.#now();
    let events: readonly ConsumerEvent[] = [];
    try {
      events = await consumer.poll(this.#pollWaitMs());
      this.#backoff.succeeded();
    } catch (error) {
      this.#recover(error, 'poll');
    }
    for (const event of events) {
      switch (event.type) {
        case 'batch':
          this.#assignment.take(event.batch, consumer);
          break;
        case 'assigned':
          this.#onAssigned(event, consumer);
          break;
        case 'revoked':
          await this.#onRevoked(event.partitions, consumer);
          break;
        case 'lost':
          this.#onLost(event.partitions, event.reason);
          break;
        case 'out-of-range':
          this.#onOutOfRange(event, consumer);
          break;
      }
    }
    if (events.some((event) => event.type === 'batch')) await this.#reach('sink-after-poll');
    for (const event of events) if (event.type === 'batch') this.#assignment.get(event.batch)?.wake();
  }

  #pollWaitMs(): number {
    if (this.#rebalancing) return IDLE_POLL_MS;
    const committing = this.#offsets.requested || (this.#host?.commitsFirst === true && !this.#assignment.finished);
    return this.#starting.length > 0 || committing || this.#assignment.inFlux ? BUSY_POLL_MS : IDLE_POLL_MS;
  }

  // -------------------------------------------------------------------------------------------------------------- rebalance

  #onAssigned({ generation, partitions, retained }: Extract<ConsumerEvent, { type: 'assigned' }>, consumer: GroupConsumer): void {
    this.#starting = this.#assignment.replace(partitions, retained, consumer);
    this.#assigned = partitions;
    this.#rebalancing = false;
    this.#rejoinBy = undefined;
    this.#options.metrics.rebalances++;
    this.#options.log.info(
      { generation, group: this.groupId, partitions: partitions.length, retained: partitions.length - this.#starting.length },
      'partitions assigned to the sink stage',
    );
  }

  /** Still the owner: what is in hand is written, and its offsets are committed. The rest of the buffers is not waited for. */
  async #onRevoked(partitions: readonly TopicPartition[], consumer: GroupConsumer): Promise<void> {
    const finished = await this.#finishAll(consumer, this.#now() + this.#tuning.drainMs);
    await this.#commitApplied(consumer);
    this.#rebalancing = true;
    this.#rejoinBy = undefined;
    this.#options.log.info({ group: this.groupId, partitions: partitions.length, finished }, 'partitions of the sink stage revoked');
  }

  #onLost(partitions: readonly TopicPartition[], reason: string): void {
    this.#options.log.warn({ group: this.groupId, partitions: partitions.length, reason }, 'partitions of the sink stage lost');
    for (const partition of partitions) this.#assignment.drop(partition);
    this.#starting = [];
    this.#rebalancing = true;
    this.#rejoinBy = undefined;
  }

  #onOutOfRange(event: Extract<ConsumerEvent, { type: 'out-of-range' }>, consumer: GroupConsumer): void {
    const partition = this.#assignment.get(event);
    if (partition === undefined || partition.startAt !== undefined) return;
    const { position, logStart, logEnd } = event;
    const offset = this.#positions.readFrom(event, position, { start: logStart, end: logEnd });
    partition.builder.queue.continueAt(offset);
    consumer.startFrom(partition, offset);
    partition.wake();
  }

  #dropAll(): void {
    this.#assignment.dropAll();
    this.#starting = [];
  }

  /** Waits until no partition has a batch in hand. False: some still had at the deadline. */
  async #finishAll(consumer: GroupConsumer, deadline: number): Promise<boolean> {
    this.#assignment.finish();
    for (;;) {
      await this.#commitRequested(consumer);
      if (this.#assignment.finished || this.#failure !== undefined) return true;
      const left = deadline - this.#now();
      if (left <= 0) return false;
      await this.#signal.wait(Math.min(left, IDLE_POLL_MS));
    }
  }

  // ------------------------------------------------------------------------------------------------------------------ start

  /** Where the group's offsets would begin; the sink, which may know better, is asked by the partition itself. */
  async #findStarts(consumer: GroupConsumer, host: SinkPartitionHost): Promise<void> {
    if (this.#starting.length === 0) return;
    let starts: readonly GroupStart[];
    try {
      starts = await this.#positions.groupStarts(consumer, this.#starting);
    } catch (error) {
      this.#recover(error, 'read-offsets');
      return;
    }
    this.#starting = [];
    for (const start of starts) this.#assignment.begin(start, host);
  }

  async #movePartitions(consumer: GroupConsumer): Promise<void> {
    try {
      await this.#assignment.move(consumer, this.#positions);
    } catch (error) {
      this.#recover(error, 'read-offsets');
    }
  }

  // ---------------------------------------------------------------------------------------------------------------- offsets

  /** At-most-once and the proof of ownership: what a partition waits for. */
  async #commitRequested(consumer: GroupConsumer): Promise<void> {
    try {
      await this.#offsets.commitRequested(consumer);
    } catch (error) {
      this.#recover(error, 'commit-offsets');
    }
  }

  async #commitApplied(consumer: GroupConsumer): Promise<void> {
    this.#lastCommitAt = this.#now();
    if (this.#host?.commitsFirst === true) return;
    try {
      await this.#offsets.commitApplied(consumer, this.#assignment.partitions);
    } catch (error) {
      this.#recover(error, 'commit-offsets');
    }
  }

  // -------------------------------------------------------------------------------------------------------------------- end

  async #close(): Promise<void> {
    const consumer = this.#consumer;
    const writer = this.#writer;
    const left = (): number => Math.max(0, this.#stopBy - this.#now());
    try {
      if (consumer !== undefined && !this.#rebalancing) {
        const finished = await this.#finishAll(consumer, this.#stopBy - Math.min(STOP_RESERVE_MS, left() / 4));
        if (!finished)
          this.#options.log.warn({ group: this.groupId }, 'stopping takes too long: what is not written is left to whoever comes next');
        await this.#commitApplied(consumer);
      }
    } catch (error) {
      this.#options.log.warn(
        { group: this.groupId, code: errorCode(error), reason: messageOf(error) },
        'the last offsets could not be committed',
      );
    }
    this.#dropAll();
    const closeMs = Math.max(left(), STOP_RESERVE_MS / 4);
    await Promise.all([consumer?.close(closeMs), writer?.close(closeMs)]);
    this.#options.log.info({ group: this.groupId }, 'sink stage stopped');
  }

  /** Throws what no retry mends. */
  #recover(error: unknown, step: WorkStep): void {
    const { log, metrics } = this.#options;
    metrics.countError(errorCode(error));
    const reason = messageOf(error);
    switch (remedyFor(error, step)) {
      case 'stop':
        throw error;
      case 'rejoin':
        // The next polls tell of the loss and of what comes after it. Until then nothing more may be written in the name of this generation.
        log.warn({ group: this.groupId, step, code: errorCode(error), reason }, 'the sink stage is not a member of its group now');
        this.#dropAll();
        this.#rebalancing = true;
        this.#rejoinBy = this.#now() + this.#settings.sessionTimeoutMs;
        break;
      case 'try-again':
      case 'roll-back':
      case 'take-new-epoch':
        log.warn({ group: this.groupId, step, code: errorCode(error), reason }, 'trying again');
        this.#resumeAt = this.#now() + this.#backoff.failed(error, step, this.#now());
        break;
    }
  }

  async #reach(name: FailPointName): Promise<void> {
    await this.#options.failPoints?.(name);
  }

  #now(): number {
    return this.#options.clock.monotonic();
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
