import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Admin, kafkaClient, type KafkaClient, type SinkMode } from '../../src/index.ts';
import { ApplicationProcess, type ProcessConfiguration, SINK_STAGE } from './application-process.ts';
import { IndependentReader } from './independent-reader.ts';
import { fillInput, InputFlow, type InputOptions } from './input-records.ts';
import { drained, judgeKafka, judgePostgres, type Judgement, type KafkaJudgement, lagOf, tableStatement } from './judge.ts';
import { createTestDatabase, type TestDatabase } from './test-database.ts';

export interface BenchOptions {
  readonly brokers: string;
  /** Of Kafka's jars. */
  readonly jars: string;
  /** Of a server on which a database may be created. Only needed for scenarios with a sink. */
  readonly databaseUrl?: string;
}

export interface ScenarioOptions extends InputOptions {
  /** Default 4. */
  readonly partitions?: number;
  /** Default: no sink. */
  readonly sink?: SinkMode;
  /** Whether there is an output topic; without one, the sink reads the input. Default true. */
  readonly output?: boolean;
  /** For all processes of the scenario. */
  readonly processes?: Partial<ProcessConfiguration>;
}

/** One broker, one database and one reader for the tests of a file; names of their own for each scenario. */
export class ProcessBench {
  readonly reader: IndependentReader;
  readonly client: KafkaClient;
  readonly admin: Admin;
  readonly database: TestDatabase | undefined;
  readonly directory: string;
  readonly brokers: string;
  readonly #scenarios: Scenario[] = [];

  private constructor(
    brokers: string,
    reader: IndependentReader,
    client: KafkaClient,
    database: TestDatabase | undefined,
    directory: string,
  ) {
    this.brokers = brokers;
    this.reader = reader;
    this.client = client;
    this.admin = client.admin();
    this.database = database;
    this.directory = directory;
  }

  static async open({ brokers, jars, databaseUrl }: BenchOptions): Promise<ProcessBench> {
    const reader = await IndependentReader.open({ brokers, jars });
    const database = databaseUrl === undefined ? undefined : await createTestDatabase(databaseUrl);
    const directory = await mkdtemp(join(tmpdir(), 'tidemark-test-'));
    return new ProcessBench(brokers, reader, kafkaClient({ brokers: brokers.split(',') }), database, directory);
  }

  /** Topics, filled with `records`, and a table. */
  async scenario(options: ScenarioOptions): Promise<Scenario> {
    const scenario = new Scenario(this, options);
    this.#scenarios.push(scenario);
    const { input, output, partitions, table } = scenario;
    await this.admin.createTopics([input, ...(output === undefined ? [] : [output])].map((topic) => ({ topic, partitions })));
    if (table !== undefined) await this.database?.query(tableStatement(table));
    if (options.records > 0) await fillInput(this.client, input, options);
    return scenario;
  }

  /** Ends all processes that are left, and removes what was made. */
  async close(): Promise<void> {
    await Promise.all(this.#scenarios.map(async (scenario) => await scenario.end()));
    const topics = this.#scenarios.flatMap(({ input, output }) => [input, ...(output === undefined ? [] : [output])]);
    if (topics.length > 0) await this.admin.deleteTopics(topics);
    await this.admin.close();
    await this.reader.close();
    await this.database?.drop();
    await rm(this.directory, { recursive: true, force: true });
  }
}

/** One application: its names, its processes, and what became of its records. */
export class Scenario {
  readonly applicationId: string;
  readonly input: string;
  readonly output: string | undefined;
  readonly table: string | undefined;
  readonly partitions: number;
  readonly records: number;
  readonly #bench: ProcessBench;
  readonly #options: ScenarioOptions;
  readonly #processes: ApplicationProcess[] = [];

  constructor(bench: ProcessBench, options: ScenarioOptions) {
    const name = randomBytes(6).toString('hex');
    this.applicationId = `app-${name}`;
    this.input = `in-${name}`;
    this.output = options.output === false ? undefined : `out-${name}`;
    this.table = options.sink === undefined ? undefined : `t_${name}`;
    this.partitions = options.partitions ?? 4;
    this.records = options.records;
    this.#bench = bench;
    this.#options = options;
  }

  get sinkGroup(): string {
    return `${this.applicationId}-${SINK_STAGE}`;
  }

  /** Writes into the input until it is stopped; for a scenario that was made with no records. */
  flow(recordsPerSecond: number): InputFlow {
    return new InputFlow(this.#bench.client, this.input, { ...this.#options, recordsPerSecond });
  }

  /** Starts an instance; it may have run before under this id. */
  start(instanceId: string, overrides: Partial<ProcessConfiguration> = {}): ApplicationProcess {
    const { database, brokers, directory } = this.#bench;
    const { sink, processes } = this.#options;
    const started = ApplicationProcess.start(
      {
        brokers,
        applicationId: this.applicationId,
        instanceId,
        stateDirectory: directory,
        commitIntervalMs: 30,
        sessionTimeoutMs: 6_000,
        heartbeatIntervalMs: 500,
        input: this.input,
        ...(this.output === undefined ? {} : { output: this.output }),
        ...(sink === undefined || this.table === undefined || database === undefined
          ? {}
          : { sink: { database: database.url, mode: sink, table: this.table, maxBatchRecords: 100 } }),
        ...processes,
        ...overrides,
      },
      directory,
    );
    this.#processes.push(started);
    return started;
  }

  /** Resolves when all of the input, and of what the sink reads, is committed by their groups. Throws if a living process fails. */
  async drained(deadlineMs?: number): Promise<void> {
    const options = { ...(deadlineMs === undefined ? {} : { deadlineMs }), check: () => this.check() };
    const { input, output, applicationId: group } = this;
    try {
      if (output !== undefined) await drained(this.#bench.reader, { group, topic: input }, options);
      if (this.table !== undefined) await drained(this.#bench.reader, { group: this.sinkGroup, topic: output ?? input }, options);
    } catch (error) {
      throw new Error(`${error instanceof Error ? error.message : String(error)}\n${this.#logs()}`, { cause: error });
    }
  }

  /** Resolves when no transaction is open in the output any more: the broker aborts that of a dead process after its time-out. */
  async settled(deadlineMs = 60_000): Promise<void> {
    const deadline = performance.now() + deadlineMs;
    for (;;) {
      const open = await this.#bench.reader.openTransactions(this.output ?? this.input);
      if (open.length === 0) return;
      if (performance.now() > deadline) throw new Error(`${open.length} transactions are open after ${deadlineMs} ms`);
      await sleep(200);
    }
  }

  /** Input records that are committed. */
  async committed(): Promise<number> {
    const offsets = (await this.#bench.reader.groupOffsets(this.applicationId)).filter(({ topic }) => topic === this.input);
    return offsets.reduce((sum, { offset }) => sum + Number(offset), 0);
  }

  /** Resolves when so many more are committed: what comes next happens in the middle of the flow. */
  async progress(records: number, deadlineMs = 60_000): Promise<void> {
    const deadline = performance.now() + deadlineMs;
    const wanted = (await this.committed()) + records;
    for (let committed = 0; committed < wanted; committed = await this.committed()) {
      this.check();
      if (performance.now() > deadline) {
        throw new Error(`only ${committed} of ${wanted} records were committed within ${deadlineMs} ms\n${this.#logs()}`);
      }
      await sleep(20);
    }
  }

  /** Input records that are not committed yet. */
  async lag(): Promise<number> {
    return Number(await lagOf(this.#bench.reader, this.applicationId, this.input));
  }

  /** Throws if an application has failed, or a process has ended in another way than by SIGKILL or in order. */
  check(): void {
    for (const each of this.#processes) each.check();
  }

  async judgeKafka(): Promise<KafkaJudgement> {
    const { input, output = '', applicationId: group } = this;
    return await judgeKafka(this.#bench.reader, { input, output, group });
  }

  /** `once`: each id once, however often it was sent. Default true. */
  async judgePostgres({ once = true }: { readonly once?: boolean } = {}): Promise<Judgement> {
    const { database, reader } = this.#bench;
    if (database === undefined || this.table === undefined) throw new Error('this scenario has no table');
    return await judgePostgres(reader, async (text) => await database.query(text), { input: this.input, table: this.table, once });
  }

  /** Closes all that are still there, in order. */
  async stop(): Promise<void> {
    await Promise.all(this.#processes.filter((each) => !each.hasExited).map(async (each) => await each.stop()));
  }

  async end(): Promise<void> {
    await Promise.all(this.#processes.map(async (each) => await each.kill()));
  }

  #logs(): string {
    const living = this.#processes.filter((each) => !each.hasExited);
    return living
      .map(({ pid, configuration, state, log }) => `--- ${configuration.instanceId} (pid ${pid}) is ${state}\n${log}`)
      .join('\n');
  }
}
