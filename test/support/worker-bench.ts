import { type CommitProtocol, CommitThenProcess, FlushThenCommit, TransactionalCommit } from '../../src/runtime/commit.ts';
import { compileOptions, type RuntimeOptions } from '../../src/runtime/options.ts';
import { TaskPlan } from '../../src/runtime/task-plan.ts';
import { Worker, type WorkerState } from '../../src/runtime/worker.ts';
import { Metrics } from '../../src/ops/metrics.ts';
import type { Log } from '../../src/ops/log.ts';
import type { Topology } from '../../src/topology/topology.ts';
import { FakeCluster, FakeConsumer, FakeIdempotentProducer, FakeTransactionalProducer } from './fake-kafka.ts';
import { ManualClock } from './manual-clock.ts';

export interface LogLine {
  readonly level: string;
  readonly fields: object;
  readonly message: string;
}

export function recordingLog(lines: LogLine[] = []): Log {
  const at = (level: string) => (fields: object, message: string) => void lines.push({ level, fields, message });
  const log: Log = { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error'), child: () => log };
  return log;
}

/** A worker on a scripted Kafka, driven step by step. */
export class WorkerBench {
  readonly clock = new ManualClock();
  readonly cluster = new FakeCluster(this.clock);
  readonly consumer = new FakeConsumer(this.cluster);
  readonly metrics = new Metrics();
  readonly lines: LogLine[] = [];
  readonly states: WorkerState[] = [];
  readonly worker: Worker;
  readonly producer: FakeTransactionalProducer | FakeIdempotentProducer;

  constructor(topology: Topology, options: Partial<RuntimeOptions> = {}) {
    const settings = compileOptions({ applicationId: 'app', topology, ...options }, '/nowhere');
    const { cluster, consumer, clock } = this;
    const { failPoints } = options;
    let create: ConstructorParameters<typeof Worker>[0]['protocol'];
    if (settings.guarantee === 'exactly-once') {
      const producer = new FakeTransactionalProducer(cluster, consumer);
      this.producer = producer;
      create = (group): CommitProtocol => new TransactionalCommit(producer, group, failPoints);
    } else {
      const producer = new FakeIdempotentProducer(cluster);
      this.producer = producer;
      create = (): CommitProtocol =>
        settings.guarantee === 'at-least-once'
          ? new FlushThenCommit(producer, consumer, failPoints)
          : new CommitThenProcess(producer, consumer, failPoints);
    }
    this.worker = new Worker({
      settings,
      plan: new TaskPlan(topology.subTopologies),
      instanceId: 'instance-1',
      consumer,
      protocol: create,
      clock,
      random: () => 0.5,
      turn: async () => undefined,
      log: recordingLog(this.lines),
      metrics: this.metrics,
      failPoints,
      onState: (state) => this.states.push(state),
    });
  }

  /** Loads the topics that an application loads at its start. */
  async load(topics: readonly string[]): Promise<void> {
    await this.producer.loadTopics(topics);
    this.cluster.journal.length = 0;
  }

  async steps(count: number): Promise<void> {
    for (let i = 0; i < count; i++) await this.worker.step();
  }

  /** Steps until the condition holds; fails after many. */
  async until(condition: () => boolean, maxSteps = 300): Promise<void> {
    for (let i = 0; i < maxSteps; i++) {
      if (condition()) return;
      await this.worker.step();
    }
    throw new Error(`not reached in ${maxSteps} steps; journal: ${this.cluster.journal.slice(-20).join(' | ')}`);
  }
}
