import type { FetchOptions, KafkaClient, ProducerOptions } from '../kafka/port.ts';
import type { Clock, Random } from '../model/clock.ts';
import { ConfigurationError } from '../model/errors.ts';
import type { FailPoints } from '../model/fail-point.ts';
import type { Guarantee } from '../model/guarantee.ts';
import { requireKnownOptions } from '../model/known-options.ts';
import { topicNameFault } from '../model/topic-name.ts';
import type { HttpOptions } from '../ops/http.ts';
import type { LogOption } from '../ops/log.ts';
import type { MetricsRegistry } from '../ops/metrics.ts';
import type { Topology } from '../topology/topology.ts';
import type { OffsetOutOfRange } from './offset-range.ts';
import { FAILURE_ACTIONS, type FailurePolicy } from './record-failure.ts';
import { DEFAULT_SINK_TUNING, type SinkTuning } from './sink-tuning.ts';
import type { StartFrom } from './start-position.ts';

/** All but `kafka`, which the caller of the compilation turns into a client. Durations are milliseconds. */
export interface RuntimeOptions {
  /**
   * Names the application in the cluster: its consumer group, and the beginning of its transactional ids and internal topics. All instances
   * have the same one; two applications never do. Required.
   */
  readonly applicationId: string;

  /** What to run, from `StreamsBuilder.build()`. All instances run the same one. Required. */
  readonly topology: Topology;

  /**
   * What happens to a record when the process dies. Stronger costs more: exactly-once adds a commit of a few milliseconds to each
   * `commitIntervalMs`, and readers see outputs only after it. Default `exactly-once`.
   */
  readonly guarantee?: Guarantee;

  /**
   * How often outputs and positions are committed. Under exactly-once, outputs are visible to read_committed readers only after a commit: a
   * shorter interval means lower latency, a longer one fewer and larger transactions. Under at-least-once, what was processed since the last
   * commit is repeated after a crash. Default 100 under exactly-once, else 30000 (as Kafka Streams).
   */
  readonly commitIntervalMs?: number;

  /** A commit is made early when this many bytes were written since the last one, so that an abort never drops more. Default 64 MiB. */
  readonly commitBytes?: number;

  /**
   * After this time the broker aborts a transaction whose owner is silent. Readers of the output wait that long behind a process that
   * died and is not restarted; a process that stands still for longer has to do its open transaction again. Above `commitIntervalMs`, below
   * the broker's `transaction.max.timeout.ms`. Default 10000.
   */
  readonly transactionTimeoutMs?: number;

  /**
   * Where this machine's instances keep their identity (and later their state): `<stateDirectory>/<applicationId>/<slot>`. On a disk that
   * survives a restart, the restarted process is recognised and ends its predecessor's transaction at once; otherwise readers wait for
   * `transactionTimeoutMs`. Temporary folders are cleaned by the system sooner or later, so name a real one in production.
   * Default `tidemark` in the system's folder for temporary files.
   */
  readonly stateDirectory?: string;

  /**
   * The identity of this process, the same after a restart and unlike that of any other running instance, such as a pod's name in a stateful
   * set. Part of the transactional id. Default: a random one that is kept in the first free slot of the state directory, so several processes
   * may share a machine.
   */
  readonly instanceId?: string;

  /**
   * Also use the instance id as `group.instance.id` (KIP-345): a process that is restarted within `sessionTimeoutMs` gets its partitions back
   * without a rebalance. The price: one that is closed for good keeps its partitions until the session times out. Default false.
   */
  readonly staticMembership?: boolean;

  /** A record whose key or value cannot be read. Default `fail`. */
  readonly onDeserialisationError?: FailurePolicy;

  /** A record whose processing throws, or whose output cannot be written. Default `fail`. */
  readonly onProcessingError?: FailurePolicy;

  /**
   * Takes the records that the policies call `dead-letter`, with headers `tidemark-*` that tell of the failure. Created at the start, with one
   * partition, when a policy can need it and it does not exist. Default `<applicationId>-dead-letters`.
   */
  readonly deadLetterTopic?: string;

  /** Where to begin in a partition without a committed offset. Default `earliest`. */
  readonly startFrom?: StartFrom;

  /**
   * What to do when the next record to read does not exist any more (retention has deleted it) or not yet (the log was cut). `earliest` and
   * `latest` go on with a gap or a repetition, which is logged. Default `error`: the application stops.
   */
  readonly offsetOutOfRange?: OffsetOutOfRange;

  /**
   * A partition is not read further while this many bytes of it wait to be processed. Records are decoded one by one when their turn comes,
   * so this is the memory that they take. Default 2 MiB.
   */
  readonly maxBufferedBytes?: number;

  /** The group takes a member that sends no heartbeat for this long for dead. Default 45000, as `session.timeout.ms`. */
  readonly sessionTimeoutMs?: number;

  /** At most a third of `sessionTimeoutMs`; a rebalance is noticed with the next heartbeat. Default 3000. */
  readonly heartbeatIntervalMs?: number;

  /** A process that does not come round to polling for this long leaves the group by itself. Default 300000. */
  readonly maxPollIntervalMs?: number;

  /** How often the cluster is asked for new topics and partitions. Default 60000. */
  readonly metadataMaxAgeMs?: number;

  /** Deadline of one request, answer included. Default 30000 for reading, 10000 for writing. */
  readonly requestTimeoutMs?: number;

  /** A series of failures that lasts this long (a cluster that is gone) makes the application fail; until then it retries. Default 300000. */
  readonly retryTimeoutMs?: number;

  /** What `close` takes at most when it is called without a time. Default 30000. */
  readonly closeTimeoutMs?: number;

  /** How records are fetched. */
  readonly fetch?: Omit<FetchOptions, 'isolation'>;

  /** How records are written: compression, batch size, buffers, delivery time-out. */
  readonly producer?: Omit<ProducerOptions, 'clientId' | 'requestTimeoutMs'>;

  /** How sink stages gather, retry and commit: see `SinkTuning` for each value and its default. */
  readonly sinks?: Partial<SinkTuning>;

  /**
   * The most that is done between two turns of the event loop: `maxSliceRecords` (default 2000), `maxSliceMs` (default 8), 4 MiB of output.
   * Smaller slices let other work of the process run sooner.
   */
  readonly maxSliceRecords?: number;
  readonly maxSliceMs?: number;

  /** A pino logger, or options for one. One line per life-cycle event, none per record. Default: pino on standard output, level `info`. */
  readonly logger?: LogOption;

  /** A prom-client registry for the metrics `tidemark_*`. Default: one of its own, as `application.metrics`. */
  readonly metrics?: MetricsRegistry;

  /** Serves `/livez`, `/readyz` and `/metrics`. Default: not served. */
  readonly http?: HttpOptions;

  /** For simulations and tests. Default: the machine's. */
  readonly clock?: Clock;
  /** For simulations and tests. Default: the machine's. */
  readonly random?: Random;
  /** For tests and demonstrations: called at named places of the protocol. Default: none. */
  readonly failPoints?: FailPoints;
}

/** Every option with its value, checked. */
export interface Settings {
  readonly applicationId: string;
  readonly topology: Topology;
  readonly guarantee: Guarantee;
  readonly commitIntervalMs: number;
  readonly commitBytes: number;
  readonly transactionTimeoutMs: number;
  readonly stateDirectory: string;
  readonly instanceId: string | undefined;
  readonly staticMembership: boolean;
  readonly onDeserialisationError: FailurePolicy;
  readonly onProcessingError: FailurePolicy;
  readonly deadLetterTopic: string;
  readonly startFrom: StartFrom;
  readonly offsetOutOfRange: OffsetOutOfRange;
  readonly maxBufferedBytes: number;
  readonly sessionTimeoutMs: number;
  readonly heartbeatIntervalMs: number;
  readonly maxPollIntervalMs: number;
  readonly metadataMaxAgeMs: number;
  readonly requestTimeoutMs: number | undefined;
  readonly retryTimeoutMs: number;
  readonly closeTimeoutMs: number;
  readonly fetch: Omit<FetchOptions, 'isolation'>;
  readonly producer: Omit<ProducerOptions, 'clientId' | 'requestTimeoutMs'>;
  readonly sinks: SinkTuning;
  readonly maxSliceRecords: number;
  readonly maxSliceMs: number;
  readonly http: HttpOptions | undefined;
}

/** The compiler sees to it that none is missing. */
const OPTIONS: Readonly<Record<keyof RuntimeOptions | 'kafka', true>> = {
  kafka: true,
  applicationId: true,
  topology: true,
  guarantee: true,
  commitIntervalMs: true,
  commitBytes: true,
  transactionTimeoutMs: true,
  stateDirectory: true,
  instanceId: true,
  staticMembership: true,
  onDeserialisationError: true,
  onProcessingError: true,
  deadLetterTopic: true,
  startFrom: true,
  offsetOutOfRange: true,
  maxBufferedBytes: true,
  sessionTimeoutMs: true,
  heartbeatIntervalMs: true,
  maxPollIntervalMs: true,
  metadataMaxAgeMs: true,
  requestTimeoutMs: true,
  retryTimeoutMs: true,
  closeTimeoutMs: true,
  fetch: true,
  producer: true,
  sinks: true,
  maxSliceRecords: true,
  maxSliceMs: true,
  logger: true,
  metrics: true,
  http: true,
  clock: true,
  random: true,
  failPoints: true,
};

const GUARANTEES: readonly Guarantee[] = ['at-most-once', 'at-least-once', 'exactly-once'];
const START_FROM: readonly StartFrom[] = ['earliest', 'latest', 'error'];
const OUT_OF_RANGE: readonly OffsetOutOfRange[] = ['error', 'earliest', 'latest'];
/** Room for the suffixes of internal topics and transactional ids. */
const MAX_ID_LENGTH = 150;

/** `defaultStateDirectory` is the machine's, which only the caller knows. Throws ConfigurationError that names the option. */
export function compileOptions(options: RuntimeOptions, defaultStateDirectory: string): Settings {
  requireKnownOptions('Application', options, OPTIONS);
  const applicationId = identifier('applicationId', options.applicationId);
  requireTopology(options.topology);
  const guarantee = oneOf('guarantee', options.guarantee, GUARANTEES, 'exactly-once');
  const commitIntervalMs = duration('commitIntervalMs', options.commitIntervalMs, guarantee === 'exactly-once' ? 100 : 30_000);
  const transactionTimeoutMs = duration('transactionTimeoutMs', options.transactionTimeoutMs, 10_000);
  if (guarantee === 'exactly-once' && transactionTimeoutMs <= commitIntervalMs) {
    throw new ConfigurationError(
      `option 'transactionTimeoutMs' is ${transactionTimeoutMs}, not above commitIntervalMs (${commitIntervalMs}): the broker would abort transactions before they are committed. Raise it, or commit more often.`,
    );
  }
  const sessionTimeoutMs = duration('sessionTimeoutMs', options.sessionTimeoutMs, 45_000);
  const heartbeatIntervalMs = duration(
    'heartbeatIntervalMs',
    options.heartbeatIntervalMs,
    Math.min(3_000, Math.max(1, Math.floor(sessionTimeoutMs / 3))),
  );
  if (heartbeatIntervalMs * 3 > sessionTimeoutMs) {
    throw new ConfigurationError(
      `option 'heartbeatIntervalMs' is ${heartbeatIntervalMs}, more than a third of sessionTimeoutMs (${sessionTimeoutMs}): one lost heartbeat would cost the membership. Lower it to ${Math.floor(sessionTimeoutMs / 3)}.`,
    );
  }
  return Object.freeze({
    applicationId,
    topology: options.topology,
    guarantee,
    commitIntervalMs,
    commitBytes: positive('commitBytes', options.commitBytes, 64 * 1024 * 1024),
    transactionTimeoutMs,
    stateDirectory: text('stateDirectory', options.stateDirectory, defaultStateDirectory),
    instanceId: options.instanceId === undefined ? undefined : identifier('instanceId', options.instanceId),
    staticMembership: options.staticMembership ?? false,
    onDeserialisationError: policy('onDeserialisationError', options.onDeserialisationError),
    onProcessingError: policy('onProcessingError', options.onProcessingError),
    deadLetterTopic: topicName('deadLetterTopic', options.deadLetterTopic, `${applicationId}-dead-letters`),
    startFrom: oneOf('startFrom', options.startFrom, START_FROM, 'earliest'),
    offsetOutOfRange: oneOf('offsetOutOfRange', options.offsetOutOfRange, OUT_OF_RANGE, 'error'),
    maxBufferedBytes: positive('maxBufferedBytes', options.maxBufferedBytes, 2 * 1024 * 1024),
    sessionTimeoutMs,
    heartbeatIntervalMs,
    maxPollIntervalMs: duration('maxPollIntervalMs', options.maxPollIntervalMs, 300_000),
    metadataMaxAgeMs: duration('metadataMaxAgeMs', options.metadataMaxAgeMs, 60_000),
    requestTimeoutMs: options.requestTimeoutMs === undefined ? undefined : duration('requestTimeoutMs', options.requestTimeoutMs, 0),
    retryTimeoutMs: duration('retryTimeoutMs', options.retryTimeoutMs, 300_000),
    closeTimeoutMs: duration('closeTimeoutMs', options.closeTimeoutMs, 30_000),
    fetch: options.fetch ?? {},
    producer: options.producer ?? {},
    sinks: sinkTuning(options.sinks ?? {}),
    maxSliceRecords: positive('maxSliceRecords', options.maxSliceRecords, 2000),
    maxSliceMs: positive('maxSliceMs', options.maxSliceMs, 8),
    http: options.http,
  });
}

function sinkTuning(tuning: Partial<SinkTuning>): SinkTuning {
  const known = Object.fromEntries(Object.keys(DEFAULT_SINK_TUNING).map((name) => [name, true as const]));
  requireKnownOptions("option 'sinks'", tuning, known);
  const names = Object.keys(DEFAULT_SINK_TUNING) as (keyof SinkTuning)[];
  return Object.freeze(
    Object.fromEntries(
      names.map((name) => [name, positive(`sinks.${name}`, tuning[name], DEFAULT_SINK_TUNING[name])]),
    ) as unknown as SinkTuning,
  );
}

/** Whether `kafka` is a client already, and not the configuration for one. */
export function isKafkaClient(kafka: unknown): kafka is KafkaClient {
  return typeof (kafka as Partial<KafkaClient> | undefined)?.groupConsumer === 'function';
}

function requireTopology(topology: Topology): void {
  if (typeof topology !== 'object' || topology === null || !Array.isArray(topology.subTopologies)) {
    throw new ConfigurationError("option 'topology' is not a topology. Pass what StreamsBuilder.build() returned.");
  }
}

function identifier(option: string, value: unknown): string {
  const fault = topicNameFault(value);
  if (fault !== undefined) {
    throw new ConfigurationError(
      `option '${option}' ${fault}. Names of topics and groups are made of it: use letters, digits, '.', '_' and '-'.`,
    );
  }
  if ((value as string).length > MAX_ID_LENGTH) {
    throw new ConfigurationError(`option '${option}' has ${(value as string).length} characters. Use at most ${MAX_ID_LENGTH}.`);
  }
  return value as string;
}

function topicName(option: string, value: unknown, byDefault: string): string {
  if (value === undefined) return byDefault;
  const fault = topicNameFault(value);
  if (fault !== undefined) throw new ConfigurationError(`option '${option}' ${fault}. Give a topic name that Kafka allows.`);
  return value as string;
}

function text(option: string, value: unknown, byDefault: string): string {
  if (value === undefined) return byDefault;
  if (typeof value === 'string' && value !== '') return value;
  throw new ConfigurationError(`option '${option}' is ${JSON.stringify(value)}. Give a text that is not empty, or leave it out.`);
}

function oneOf<T extends string>(option: string, value: unknown, allowed: readonly T[], byDefault: T): T {
  if (value === undefined) return byDefault;
  if (allowed.includes(value as T)) return value as T;
  throw new ConfigurationError(
    `option '${option}' is ${JSON.stringify(value)}. Give one of ${allowed.map((name) => `'${name}'`).join(', ')}.`,
  );
}

function policy(option: string, value: unknown): FailurePolicy {
  if (typeof value === 'function') return value as FailurePolicy;
  return oneOf(option, value, FAILURE_ACTIONS, 'fail');
}

/** Timers of Node hold 31 bits; a longer delay would fire at once. */
const MAX_MS = 0x7fffffff;

function duration(option: string, value: unknown, byDefault: number): number {
  if (value === undefined) return byDefault;
  if (typeof value === 'number' && value > 0 && value <= MAX_MS) return value;
  throw new ConfigurationError(`option '${option}' is ${shown(value)}. Give milliseconds above 0 and below 2^31.`);
}

function positive(option: string, value: unknown, byDefault: number): number {
  if (value === undefined) return byDefault;
  if (typeof value === 'number' && value > 0 && Number.isFinite(value)) return value;
  throw new ConfigurationError(`option '${option}' is ${shown(value)}. Give a number above 0.`);
}

function shown(value: unknown): string {
  return typeof value === 'number' ? String(value) : (JSON.stringify(value) ?? typeof value);
}
