import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { ConfigurationError } from '../model/errors.ts';

/** Counted in plain numbers where records flow, read when somebody scrapes. */
export interface TopicCounters {
  records: number;
  bytes: number;
}

/** What became of the records of one source topic that were not processed. */
export interface FailureCounters {
  skipped: number;
  deadLettered: number;
}

/** One per sink stage. */
export interface SinkCounters {
  batches: number;
  applied: number;
  duplicates: number;
  deadLettered: number;
  skipped: number;
  retries: number;
  fenced: number;
}

export interface PartitionLag {
  readonly topic: string;
  readonly partition: number;
  /** Records between the position and the end of the log, as far as it was seen. */
  readonly lag: number;
}

/** What only the one who does the work can tell, asked for at each scrape. */
export interface MetricsSource {
  tasks(): number;
  lags(): readonly PartitionLag[];
  /** Milliseconds since the last poll; undefined before the first. */
  lastPollAgeMs(): number | undefined;
}

export type MetricsRegistry = Registry;

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** All metrics of one application, named `tidemark_*`. */
export class Metrics {
  readonly registry: Registry;

  commits = 0;
  aborts = 0;
  rebalances = 0;
  /** Records that at-most-once has given up after their offset was committed. */
  lost = 0;

  readonly #consumed = new Map<string, TopicCounters>();
  readonly #produced = new Map<string, { records: number }>();
  #producedBytes = 0;
  readonly #failures = new Map<string, FailureCounters>();
  readonly #errors = new Map<string, number>();
  readonly #sinks = new Map<string, SinkCounters>();
  readonly #sources = new Set<MetricsSource>();
  readonly #names: string[] = [];
  readonly #commitSeconds: Histogram;
  readonly #transactionSeconds: Histogram;

  /** `registry`: the application's own one by default. Throws ConfigurationError where it holds another application's metrics already. */
  constructor(registry: Registry = new Registry()) {
    this.registry = registry;
    this.#counter('records_consumed_total', 'Records taken from source topics', ['topic'], (set) => {
      for (const [topic, { records }] of this.#consumed) set({ topic }, records);
    });
    this.#counter('bytes_consumed_total', 'Bytes of source topics as they came over the wire', ['topic'], (set) => {
      for (const [topic, { bytes }] of this.#consumed) set({ topic }, bytes);
    });
    this.#counter('records_produced_total', 'Records handed to the producer', ['topic'], (set) => {
      for (const [topic, { records }] of this.#produced) set({ topic }, records);
    });
    this.#counter('bytes_produced_total', 'Bytes handed to the producer', [], (set) => set({}, this.#producedBytes));
    this.#counter('commits_total', 'Commits that succeeded', [], (set) => set({}, this.commits));
    this.#counter('aborts_total', 'Transactions, or work between two commits, that were dropped to be done again', [], (set) =>
      set({}, this.aborts),
    );
    this.#counter('rebalances_total', 'Rebalances of the group that ended with an assignment', [], (set) => set({}, this.rebalances));
    this.#counter('lost_records_total', 'Records that at-most-once has lost to an error', [], (set) => set({}, this.lost));
    this.#counter('skipped_records_total', 'Records skipped for an error', ['topic'], (set) => {
      for (const [topic, { skipped }] of this.#failures) set({ topic }, skipped);
    });
    this.#counter('dead_letters_total', 'Records sent to the dead letter topic, by source topic', ['topic'], (set) => {
      for (const [topic, { deadLettered }] of this.#failures) set({ topic }, deadLettered);
    });
    this.#counter('errors_total', 'Errors by code', ['code'], (set) => {
      for (const [code, count] of this.#errors) set({ code }, count);
    });
    for (const [name, help] of SINK_COUNTERS) {
      this.#counter(`sink_${name.replaceAll(/[A-Z]/g, (upper) => `_${upper.toLowerCase()}`)}_total`, help, ['stage'], (set) => {
        for (const [stage, counters] of this.#sinks) set({ stage }, counters[name]);
      });
    }

    this.#gauge('tasks', 'Tasks that run here', [], (set) => {
      let tasks = 0;
      for (const source of this.#sources) tasks += source.tasks();
      set({}, tasks);
    });
    this.#gauge('partition_lag', 'Records between the position and the end of the log', ['topic', 'partition'], (set) => {
      for (const source of this.#sources) for (const { topic, partition, lag } of source.lags()) set({ topic, partition }, lag);
    });
    this.#gauge('last_poll_age_seconds', 'Time since the last poll of the group', [], (set) => {
      const ages = [...this.#sources].map((source) => source.lastPollAgeMs()).filter((age) => age !== undefined);
      if (ages.length > 0) set({}, Math.max(...ages) / 1000);
    });

    this.#commitSeconds = this.#histogram('commit_seconds', 'Duration of a commit, from the flush to its answer');
    this.#transactionSeconds = this.#histogram('transaction_seconds', 'Age of a transaction when it was committed');
  }

  consumed(topic: string): TopicCounters {
    return entry(this.#consumed, topic, () => ({ records: 0, bytes: 0 }));
  }

  produced(topic: string): { records: number } {
    return entry(this.#produced, topic, () => ({ records: 0 }));
  }

  failures(topic: string): FailureCounters {
    return entry(this.#failures, topic, () => ({ skipped: 0, deadLettered: 0 }));
  }

  /** Of all source topics. */
  allFailures(): Iterable<FailureCounters> {
    return this.#failures.values();
  }

  sink(stage: string): SinkCounters {
    return entry(this.#sinks, stage, () => ({
      batches: 0,
      applied: 0,
      duplicates: 0,
      deadLettered: 0,
      skipped: 0,
      retries: 0,
      fenced: 0,
    }));
  }

  addProducedBytes(bytes: number): void {
    this.#producedBytes += bytes;
  }

  countError(code: string): void {
    this.#errors.set(code, (this.#errors.get(code) ?? 0) + 1);
  }

  /** `transactionMs`: from the first record of the transaction on. */
  countCommit(commitMs: number, transactionMs: number): void {
    this.commits++;
    this.#commitSeconds.observe(commitMs / 1000);
    this.#transactionSeconds.observe(transactionMs / 1000);
  }

  attach(source: MetricsSource): void {
    this.#sources.add(source);
  }

  detach(source: MetricsSource): void {
    this.#sources.delete(source);
  }

  /** Takes the metrics out of the registry, so that it can serve the next application. */
  unregister(): void {
    for (const name of this.#names) this.registry.removeSingleMetric(name);
    this.#names.length = 0;
  }

  #counter(name: string, help: string, labelNames: readonly string[], read: (set: SetValue) => void): void {
    const counter: Counter = new Counter({
      name: this.#name(name),
      help,
      labelNames,
      registers: [this.registry],
      collect() {
        counter.reset();
        read((labels, value) => counter.inc(labels, value));
      },
    });
  }

  #gauge(name: string, help: string, labelNames: readonly string[], read: (set: SetValue) => void): void {
    const gauge: Gauge = new Gauge({
      name: this.#name(name),
      help,
      labelNames,
      registers: [this.registry],
      collect() {
        gauge.reset();
        read((labels, value) => gauge.set(labels, value));
      },
    });
  }

  #histogram(name: string, help: string): Histogram {
    return new Histogram({ name: this.#name(name), help, buckets: SECONDS, registers: [this.registry] });
  }

  #name(name: string): string {
    const full = `tidemark_${name}`;
    if (this.registry.getSingleMetric(full) !== undefined) {
      throw new ConfigurationError(
        `option 'metrics': the registry holds '${full}' of another application already. Give each application a registry of its own, and merge them with Registry.merge.`,
      );
    }
    this.#names.push(full);
    return full;
  }
}

type SetValue = (labels: Record<string, string | number>, value: number) => void;

const SINK_COUNTERS: readonly (readonly [keyof SinkCounters, string])[] = [
  ['batches', 'Batches that a sink has applied'],
  ['applied', 'Records that a sink has applied'],
  ['duplicates', 'Records that a sink had applied before'],
  ['deadLettered', 'Records that a sink has refused and kept as dead letters'],
  ['skipped', 'Records that a sink stage has skipped for an error'],
  ['retries', 'Batches that a sink stage had to write again'],
  ['fenced', 'Times that a sink stage found another owner of its partition'],
];

function entry<V>(map: Map<string, V>, key: string, make: () => V): V {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}
