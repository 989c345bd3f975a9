import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  Application,
  type ApplicationOptions,
  type KafkaClient,
  kafkaClient,
  type KafkaConfig,
  json,
  string,
  StreamsBuilder,
  type Topology,
} from '../../src/index.ts';
import type { Log } from '../../src/ops/log.ts';
import type { InputValue } from './input-records.ts';

/** What each application of a test is given beside its topology. Short times, so that a fault shows its effect soon. */
const BRISK = { commitIntervalMs: 30, sessionTimeoutMs: 6_000, heartbeatIntervalMs: 500, closeTimeoutMs: 10_000 };
const LOOK_MS = 20;

export interface LoggedEvent {
  readonly level: string;
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** An application in the test's own process, with what it has logged. */
export interface RunningApplication {
  readonly application: Application;
  readonly events: readonly LoggedEvent[];
  /** Rejects when it is closed without an error. */
  failure(): Promise<Error>;
}

/** Topics and applications in this process, for what needs no process of its own. Removes what it has made. */
export class ApplicationBench {
  readonly client: KafkaClient;
  readonly directory: string;
  readonly #brokers: string;
  readonly #topics = new Set<string>();
  readonly #applications: Application[] = [];

  private constructor(brokers: string, directory: string) {
    this.#brokers = brokers;
    this.client = kafkaClient({ brokers: brokers.split(',') });
    this.directory = directory;
  }

  static async open(brokers: string): Promise<ApplicationBench> {
    return new ApplicationBench(brokers, await mkdtemp(join(tmpdir(), 'tidemark-test-')));
  }

  /** A name of its own for a topic, an application or a table. */
  name(what: string): string {
    return `${what}-${randomBytes(6).toString('hex')}`;
  }

  /** Creates a topic with a name of its own. */
  async topic(what: string, partitions = 1, configs: Readonly<Record<string, string>> = {}): Promise<string> {
    const topic = this.name(what);
    await this.create(topic, partitions, configs);
    return topic;
  }

  async create(topic: string, partitions = 1, configs: Readonly<Record<string, string>> = {}): Promise<void> {
    await this.#withAdmin(async (admin) => await admin.createTopics([{ topic, partitions, configs }]));
    this.#topics.add(topic);
  }

  /** Not started yet: see `Application.start`. */
  application(options: Omit<ApplicationOptions, 'kafka' | 'logger'> & { readonly kafka?: Partial<KafkaConfig> }): RunningApplication {
    const events: LoggedEvent[] = [];
    const application = new Application({
      ...BRISK,
      stateDirectory: this.directory,
      ...options,
      kafka: { brokers: this.#brokers.split(','), ...options.kafka },
      logger: recordingLog(events),
    });
    this.#applications.push(application);
    return { application, events, failure: async () => await failureOf(application) };
  }

  /** Closes and removes everything. */
  async close(): Promise<void> {
    await Promise.all(this.#applications.map(async (application) => await application.close({ timeoutMs: 5_000 })));
    if (this.#topics.size > 0) await this.#withAdmin(async (admin) => await admin.deleteTopics([...this.#topics]));
    await rm(this.directory, { recursive: true, force: true });
  }

  async #withAdmin(work: (admin: ReturnType<KafkaClient['admin']>) => Promise<void>): Promise<void> {
    const admin = this.client.admin();
    try {
      await work(admin);
    } finally {
      await admin.close();
    }
  }
}

/** Copies input records from one topic to another. */
export function copyTopology(input: string, output: string): Topology {
  const builder = new StreamsBuilder();
  builder
    .stream(input, { key: string(), value: json<InputValue>() })
    .mapValues((value) => ({ ...value }))
    .to(output, { value: json<InputValue>() });
  return builder.build();
}

/** Looks until it is so; throws with `what` after the deadline. What the look throws ends it at once. */
export async function until(what: string, look: () => boolean | Promise<boolean>, deadlineMs = 60_000): Promise<void> {
  const deadline = performance.now() + deadlineMs;
  while (!(await look())) {
    if (performance.now() > deadline) throw new Error(`not within ${deadlineMs} ms: ${what}`);
    await sleep(LOOK_MS);
  }
}

async function failureOf(application: Application): Promise<Error> {
  try {
    await application.finished;
  } catch (error) {
    return error as Error;
  }
  throw new Error('the application has ended without an error');
}

function recordingLog(events: LoggedEvent[]): Log {
  const at = (level: string) => (fields: object, message: string) => void events.push({ level, message, fields: { ...fields } });
  const log: Log = { debug: () => undefined, info: at('info'), warn: at('warn'), error: at('error'), child: () => log };
  return log;
}
