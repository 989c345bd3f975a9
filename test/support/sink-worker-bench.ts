import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import type { Admin, ConsumerEvent, KafkaClient } from '../../src/kafka/port.ts';
import type { FailPoints } from '../../src/model/fail-point.ts';
import { Metrics, type SinkCounters } from '../../src/ops/metrics.ts';
import { compileOptions, type RuntimeOptions } from '../../src/runtime/options.ts';
import type { SinkTuning } from '../../src/runtime/sink-tuning.ts';
import { SinkWorker } from '../../src/runtime/sink-worker.ts';
import type { Topology } from '../../src/topology/topology.ts';
import { FakeCluster, FakeConsumer } from './fake-kafka.ts';
import { ManualClock } from './manual-clock.ts';
import { type LogLine, recordingLog } from './worker-bench.ts';

/** Gives others a turn with each poll, as the real one does. */
class YieldingConsumer extends FakeConsumer {
  override async poll(maxWaitMs: number): Promise<readonly ConsumerEvent[]> {
    await eventLoopTurn();
    return await super.poll(maxWaitMs);
  }
}

/** A sleep lets everything else run once before its time is over. */
class YieldingClock extends ManualClock {
  override async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    await eventLoopTurn();
    await super.sleep(ms, signal);
  }
}

export interface SinkBenchOptions {
  readonly runtime?: Partial<RuntimeOptions>;
  readonly tuning?: Partial<SinkTuning>;
  readonly failPoints?: FailPoints;
}

/** A sink worker on a scripted Kafka, driven step by step. */
export class SinkWorkerBench {
  readonly clock: ManualClock = new YieldingClock();
  readonly cluster = new FakeCluster(this.clock);
  readonly consumer: FakeConsumer = new YieldingConsumer(this.cluster);
  readonly metrics = new Metrics();
  readonly lines: LogLine[] = [];
  readonly worker: SinkWorker;
  readonly counters: SinkCounters;

  constructor(topology: Topology, { runtime = {}, tuning = {}, failPoints }: SinkBenchOptions = {}) {
    const stage = topology.sinkStages[0];
    if (stage === undefined) throw new Error('the topology has no sink stage');
    this.counters = this.metrics.sink(stage.name);
    this.worker = new SinkWorker({
      stage,
      applicationId: 'app',
      client: { groupConsumer: () => this.consumer, admin: () => this.#admin() } as Partial<KafkaClient> as KafkaClient,
      clock: this.clock,
      random: () => 0.5,
      log: recordingLog(this.lines),
      metrics: this.metrics,
      options: compileOptions({ applicationId: 'app', topology, ...runtime }, '/nowhere'),
      tuning,
      turn: async () => undefined,
      ...(failPoints === undefined ? {} : { failPoints }),
    });
  }

  /** One turn of the worker's loop, and one for what runs beside it. */
  async steps(count: number): Promise<void> {
    for (let i = 0; i < count; i++) {
      await this.worker.step();
      await eventLoopTurn();
    }
  }

  /** Steps until the condition holds; fails after many. */
  async until(condition: () => boolean, maxSteps = 500): Promise<void> {
    for (let i = 0; i < maxSteps; i++) {
      if (condition()) return;
      await this.steps(1);
    }
    throw new Error(`not reached in ${maxSteps} steps; journal: ${this.cluster.journal.slice(-20).join(' | ')}`);
  }

  committed(topic: string, partition: number): bigint | undefined {
    return this.cluster.groupOffsets.get(`${topic}/${partition}`)?.offset;
  }

  messages(level: string): string[] {
    return this.lines.filter((line) => line.level === level).map((line) => line.message);
  }

  #admin(): Admin {
    const partitionCounts = async (topics: readonly string[] = []): Promise<ReadonlyMap<string, number>> =>
      new Map(
        topics
          .map((topic) => [topic, this.cluster.partitionCount(topic)] as const)
          .filter((entry): entry is [string, number] => entry[1] !== undefined),
      );
    return { partitionCounts, close: async () => undefined } as Partial<Admin> as Admin;
  }
}
