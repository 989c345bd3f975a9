import { kafkaClient } from '../kafka/kafkajs/client.ts';
import type { GroupConsumer, GroupMetadata, KafkaClient, Producer } from '../kafka/port.ts';
import type { Clock, Random } from '../model/clock.ts';
import { FatalError } from '../model/errors.ts';
import { HttpServer } from '../ops/http.ts';
import { type Log, openLog } from '../ops/log.ts';
import { Metrics, type MetricsRegistry } from '../ops/metrics.ts';
import { systemClock, systemRandom } from '../system/clock.ts';
import { eventLoopTurn } from '../system/event-loop.ts';
import { defaultStateDirectory, InstanceLock } from '../system/instance-lock.ts';
import { TOPOLOGY_IS_READ } from '../topology/reading.ts';
import { TaskAssignor } from './assignor.ts';
import { Backoff } from './backoff.ts';
import { type CommitProtocol, CommitThenProcess, FlushThenCommit, TransactionalCommit } from './commit.ts';
import { endsWithin } from './deadline.ts';
import { compileOptions, isKafkaClient, type RuntimeOptions, type Settings } from './options.ts';
import { errorCode, remedyFor } from './remedy.ts';
import { SinkWorker } from './sink-worker.ts';
import { TaskPlan } from './task-plan.ts';
import { checkTopics } from './topic-check.ts';
import { Worker } from './worker.ts';

/** How to reach Kafka; the names are those of kafkajs. */
export type KafkaConfig = Parameters<typeof kafkaClient>[0];

export interface ApplicationOptions extends RuntimeOptions {
  /** How to reach Kafka (as kafkajs' `KafkaConfig`: brokers, clientId, ssl, sasl, ...), or a client. Required. */
  readonly kafka: KafkaConfig | KafkaClient;
}

/**
 * - `created` until `start`, `starting` until the topics are checked.
 * - `rebalancing`: it waits for the group, or for the partitions that it was given to start.
 * - `running`: records are processed.
 * - `closing`, then `closed`, or `failed` after an error that no retry mends.
 */
export type ApplicationState = 'created' | 'starting' | 'rebalancing' | 'running' | 'closing' | 'closed' | 'failed';

export type StateListener = (state: ApplicationState, previous: ApplicationState) => void;

/** Whoever starts an application without its brokers is told so after this time. */
const SILENT_START_MS = 3_000;
/** Of the time for closing, so much is kept for leaving the group and closing connections. */
const CLOSE_RESERVE_MS = 2_000;

/**
 * One instance of an application: runs a topology, shares its partitions with the other instances of the same `applicationId`.
 *
 * ```ts
 * const application = new Application({ applicationId: 'orders', topology, kafka: { brokers: ['127.0.0.1:9092'] } });
 * await application.start();
 * process.once('SIGTERM', () => void application.close());
 * await application.finished;
 * ```
 */
export class Application {
  /**
   * Resolves when the application is closed, rejects with the error that made it fail. That error is logged too, so nobody has to look at this
   * promise.
   */
  readonly finished: Promise<void>;
  readonly #settings: Settings;
  readonly #kafka: ApplicationOptions['kafka'];
  readonly #failPoints: ApplicationOptions['failPoints'];
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #sharesRegistry: boolean;
  readonly #listeners = new Set<StateListener>();
  readonly #abort = new AbortController();
  readonly #finish: { resolve: () => void; reject: (error: unknown) => void };

  #state: ApplicationState = 'created';
  #starting: Promise<void> | undefined;
  #ending: Promise<void> | undefined;
  #lock: InstanceLock | undefined;
  #http: HttpServer | undefined;
  #consumer: GroupConsumer | undefined;
  #producer: Producer | undefined;
  #worker: Worker | undefined;
  #sinks: SinkWorker[] = [];
  /** Of the worker and the sink stages; they settle when these have stopped. */
  readonly #runs: Promise<void>[] = [];

  /** Throws ConfigurationError that names the option at fault. */
  constructor(options: ApplicationOptions) {
    this.#settings = compileOptions(options, defaultStateDirectory());
    this.#kafka = options.kafka;
    this.#failPoints = options.failPoints;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? systemRandom;
    this.#log = openLog(options.logger).child({ application: this.#settings.applicationId });
    this.#metrics = new Metrics(options.metrics);
    this.#sharesRegistry = options.metrics !== undefined;
    const { promise, resolve, reject } = deferred();
    this.finished = promise;
    this.#finish = { resolve, reject };
    // Whoever does not look at `finished` finds the error in the log.
    promise.catch(() => undefined);
  }

  get state(): ApplicationState {
    return this.#state;
  }

  /** The registry that holds the metrics. */
  get metrics(): MetricsRegistry {
    return this.#metrics.registry;
  }

  /** Where `/metrics` and the others are served; undefined where they are not. */
  get httpPort(): number | undefined {
    return this.#http?.port;
  }

  /** Undefined before `start`. */
  get instanceId(): string | undefined {
    return this.#lock?.instanceId;
  }

  /** Tells of each change. Returns what ends it. */
  onState(listener: StateListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Resolves when topics are checked and the group is about to be joined; `running` comes with the first assignment. Rejects with
   * ConfigurationError or FatalError when it cannot start; while the brokers cannot be reached, it tries for `retryTimeoutMs`. When it is closed
   * meanwhile, it resolves soon, and `finished` with it.
   */
  async start(): Promise<void> {
    if (this.#state !== 'created') throw new FatalError(`the application is ${this.#state}: start can be called once`);
    const read = (globalThis as { [TOPOLOGY_IS_READ]?: string })[TOPOLOGY_IS_READ];
    if (read !== undefined) {
      throw new FatalError(
        `${read} was loaded to read its topology, and it starts an application: put the topology into a file of its own, export it, and import it where you start it`,
      );
    }
    this.#enter('starting');
    this.#starting = this.#start();
    try {
      await this.#starting;
    } catch (error) {
      await this.#fail(error);
      throw error;
    }
  }

  /**
   * Ends the record in hand, commits, leaves the group, and closes all connections. After `timeoutMs` (default: option `closeTimeoutMs`) it ends
   * in any case; under exactly-once, what was not committed is then dropped, and done by whoever comes next. Never rejects.
   */
  async close({ timeoutMs = this.#settings.closeTimeoutMs }: { readonly timeoutMs?: number } = {}): Promise<void> {
    this.#ending ??= this.#close(timeoutMs);
    await this.#ending;
  }

  // ------------------------------------------------------------------------------------------------------------------ start

  async #start(): Promise<void> {
    const { applicationId, topology, stateDirectory, instanceId, http } = this.#settings;
    this.#lock = await InstanceLock.acquire({ stateDirectory, applicationId, instanceId });
    const client = isKafkaClient(this.#kafka) ? this.#kafka : this.#connect(this.#kafka);
    if (http !== undefined) this.#http = await HttpServer.listen(http, this.#health());

    const plan = new TaskPlan(topology.subTopologies);
    if (topology.subTopologies.length > 0) {
      this.#consumer = this.#groupConsumer(client, plan);
      const protocol = this.#protocol(client, this.#consumer);
      await this.#checkTopics(client, plan, (this.#producer = protocol.producer));
      this.#worker = this.#newWorker(plan, this.#consumer, protocol);
    }
    this.#sinks = topology.sinkStages.map((stage) => this.#newSinkWorker(stage, client));
    if (this.#abort.signal.aborted) return;

    this.#log.info(
      {
        instanceId: this.#lock.instanceId,
        guarantee: this.#settings.guarantee,
        fingerprint: topology.fingerprint,
        subTopologies: topology.subTopologies.length,
        sinkStages: topology.sinkStages.length,
        ...(this.#http === undefined ? {} : { httpPort: this.#http.port }),
      },
      'started',
    );
    this.#enter(this.#worker === undefined ? 'running' : 'rebalancing');
    if (this.#worker !== undefined) this.#supervise('worker', this.#worker.run());
    for (const sink of this.#sinks) this.#supervise('sink stage', sink.run());
  }

  #connect(config: KafkaConfig): KafkaClient {
    const log = this.#log;
    return kafkaClient({ clientId: this.#settings.applicationId, log: (level, message, fields) => log[level](fields, message), ...config });
  }

  #groupConsumer(client: KafkaClient, plan: TaskPlan): GroupConsumer {
    const { applicationId, topology, sessionTimeoutMs, heartbeatIntervalMs, maxPollIntervalMs, metadataMaxAgeMs } = this.#settings;
    const { requestTimeoutMs, fetch } = this.#settings;
    return client.groupConsumer({
      groupId: applicationId,
      subscription: { topics: plan.topics, patterns: plan.patterns },
      assignor: new TaskAssignor(plan, topology.fingerprint),
      sessionTimeoutMs,
      heartbeatIntervalMs,
      maxPollIntervalMs,
      metadataMaxAgeMs,
      fetch: { ...fetch, isolation: 'read-committed' },
      ...(requestTimeoutMs === undefined ? {} : { requestTimeoutMs }),
      ...this.#groupInstanceId(),
    });
  }

  /** The stage groups have it too: each id is unique in its group. */
  #groupInstanceId(): { readonly groupInstanceId?: string } {
    return this.#settings.staticMembership && this.#lock !== undefined ? { groupInstanceId: this.#lock.instanceId } : {};
  }

  #protocol(client: KafkaClient, consumer: GroupConsumer): ProtocolFactory {
    const { guarantee, producer: tuning, requestTimeoutMs, applicationId, transactionTimeoutMs } = this.#settings;
    const id = `${applicationId}-${this.#lock?.instanceId}-0`;
    const options = { ...tuning, clientId: id, ...(requestTimeoutMs === undefined ? {} : { requestTimeoutMs }) };
    const failPoints = this.#failPoints;
    switch (guarantee) {
      case 'exactly-once': {
        const producer = client.transactionalProducer({
          ...options,
          transactionalId: id,
          transactionTimeoutMs,
          ...(failPoints === undefined ? {} : { failPoints }),
        });
        return { producer, create: (group) => new TransactionalCommit(producer, group, failPoints) };
      }
      case 'at-least-once': {
        const producer = client.idempotentProducer(options);
        return { producer, create: () => new FlushThenCommit(producer, consumer, failPoints) };
      }
      case 'at-most-once': {
        const producer = client.idempotentProducer(options);
        return { producer, create: () => new CommitThenProcess(producer, consumer, failPoints) };
      }
    }
  }

  #newWorker(plan: TaskPlan, consumer: GroupConsumer, protocol: ProtocolFactory): Worker {
    return new Worker({
      settings: this.#settings,
      plan,
      instanceId: this.#lock?.instanceId ?? '',
      consumer,
      protocol: protocol.create,
      clock: this.#clock,
      random: this.#random,
      turn: eventLoopTurn,
      log: this.#log,
      metrics: this.#metrics,
      failPoints: this.#failPoints,
      onState: (state) => {
        if (this.#state === 'rebalancing' || this.#state === 'running') this.#enter(state);
      },
    });
  }

  #newSinkWorker(stage: Settings['topology']['sinkStages'][number], client: KafkaClient): SinkWorker {
    return new SinkWorker({
      stage,
      applicationId: this.#settings.applicationId,
      ...this.#groupInstanceId(),
      client,
      clock: this.#clock,
      random: this.#random,
      log: this.#log.child({ stage: stage.name }),
      metrics: this.#metrics,
      ...(this.#failPoints === undefined ? {} : { failPoints: this.#failPoints }),
      options: this.#settings,
      tuning: this.#settings.sinks,
    });
  }

  /** Tries again while the brokers cannot be reached. */
  async #checkTopics(client: KafkaClient, plan: TaskPlan, producer: Producer): Promise<void> {
    const admin = client.admin();
    const backoff = new Backoff(this.#settings.retryTimeoutMs, this.#random);
    const closing = aborted(this.#abort.signal);
    try {
      while (!this.#abort.signal.aborted) {
        try {
          const check = checkTopics(admin, producer, plan, this.#settings, this.#log);
          // Who closes an application that waits for its brokers does not wait for them too.
          const ended = Promise.race([check, closing]);
          if (!(await endsWithin(this.#clock, SILENT_START_MS, ended))) this.#log.warn({}, 'no broker has answered yet: still trying');
          await ended;
          return;
        } catch (error) {
          if (remedyFor(error, 'init') !== 'try-again') throw error;
          const delay = backoff.failed(error, 'checking topics', this.#clock.monotonic());
          this.#log.warn({ code: errorCode(error), reason: messageOf(error) }, 'the topics could not be checked yet');
          await this.#clock.sleep(delay, this.#abort.signal).catch(() => undefined);
        }
      }
    } finally {
      await admin.close(CLOSE_RESERVE_MS);
    }
  }

  // -------------------------------------------------------------------------------------------------------------------- end

  /** When one part fails, the whole application does. */
  #supervise(part: string, run: Promise<void>): void {
    this.#runs.push(
      run.catch(async (error: unknown) => {
        this.#log.error({ err: error, part, code: errorCode(error) }, messageOf(error));
        // Not awaited: this run is one of those whose end is waited for.
        this.#fail(error).catch(() => undefined);
      }),
    );
  }

  async #fail(error: unknown): Promise<void> {
    if (this.#ending !== undefined) return;
    if (this.#runs.length === 0) this.#log.error({ err: error, code: errorCode(error) }, messageOf(error));
    this.#ending = this.#end(this.#settings.closeTimeoutMs, 'failed', error);
    await this.#ending;
  }

  async #close(timeoutMs: number): Promise<void> {
    const began = this.#clock.monotonic();
    this.#abort.abort();
    if (this.#starting !== undefined) await endsWithin(this.#clock, timeoutMs, this.#starting);
    await this.#end(timeoutMs - (this.#clock.monotonic() - began), 'closed', undefined);
  }

  async #end(timeoutMs: number, end: 'closed' | 'failed', error: unknown): Promise<void> {
    const began = this.#clock.monotonic();
    const left = (): number => timeoutMs - (this.#clock.monotonic() - began);
    const reserveMs = Math.min(CLOSE_RESERVE_MS, timeoutMs / 4);
    this.#enter('closing');
    this.#abort.abort();

    this.#worker?.requestStop();
    const sinks = this.#sinks.map((sink) => sink.stop(Math.max(0, left() - reserveMs)));
    const drained = await endsWithin(this.#clock, left() - reserveMs, Promise.all([...this.#runs, ...sinks]));
    if (!drained) this.#log.warn({ timeoutMs }, 'closing takes too long: what is not committed is dropped');

    const closeMs = Math.max(100, left());
    const closing = [this.#consumer?.close(closeMs), this.#producer?.close(closeMs), this.#http?.close()];
    await endsWithin(this.#clock, closeMs, Promise.all(closing.filter((each) => each !== undefined)));
    if (this.#sharesRegistry) this.#metrics.unregister();
    await this.#releaseLock();

    this.#log.info({ drained }, end);
    this.#enter(end);
    if (end === 'closed') this.#finish.resolve();
    else this.#finish.reject(error);
  }

  async #releaseLock(): Promise<void> {
    try {
      await this.#lock?.release();
    } catch (error) {
      this.#log.warn({ reason: messageOf(error) }, 'the instance lock could not be released; it is taken over once this process has ended');
    }
  }

  // ------------------------------------------------------------------------------------------------------------------ state

  #enter(state: ApplicationState): void {
    const previous = this.#state;
    if (previous === state || previous === 'closed' || previous === 'failed') return;
    this.#state = state;
    for (const listener of this.#listeners) {
      try {
        listener(state, previous);
      } catch (error) {
        this.#log.warn({ reason: messageOf(error), state }, 'a state listener threw');
      }
    }
  }

  #health() {
    const { maxPollIntervalMs } = this.#settings;
    return {
      notLive: (): string | undefined => {
        if (this.#state === 'failed') return 'failed';
        const age = this.#worker?.lastPollAgeMs();
        return age !== undefined && age > maxPollIntervalMs ? `no poll for ${Math.round(age / 1000)} s` : undefined;
      },
      notReady: (): string | undefined => (this.#state === 'running' ? undefined : this.#state),
      metrics: async (): Promise<string> => this.#metrics.registry.metrics(),
      metricsContentType: this.#metrics.registry.contentType,
    };
  }
}

interface ProtocolFactory {
  readonly producer: Producer;
  readonly create: (group: () => GroupMetadata) => CommitProtocol;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
}

function deferred(): { promise: Promise<void>; resolve: () => void; reject: (error: unknown) => void } {
  let resolve: () => void = () => undefined;
  let reject: (error: unknown) => void = () => undefined;
  const promise = new Promise<void>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  return { promise, resolve, reject };
}
