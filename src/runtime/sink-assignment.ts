import type { FetchedBatch, GroupConsumer } from '../kafka/port.ts';
import { FatalError } from '../model/errors.ts';
import { topicPartitionKey, type TopicPartition } from '../model/topic-partition.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { SinkStage } from '../topology/topology.ts';
import type { FailurePolicies } from './record-failure.ts';
import { type BatchLimits, SinkBatchBuilder } from './sink-batch-builder.ts';
import { SinkPartition, type SinkPartitionHost } from './sink-partition.ts';
import type { GroupStart, SinkPositions } from './sink-positions.ts';
import type { TaskPlan } from './task-plan.ts';

export interface SinkAssignmentParts {
  readonly stage: SinkStage;
  readonly plan: TaskPlan;
  readonly policies: FailurePolicies;
  readonly limits: BatchLimits;
  readonly maxBufferedBytes: number;
  readonly metrics: Metrics;
  /** The partition was given up: nothing may wait for it any more. */
  readonly onDrop: (partition: SinkPartition) => void;
}

/** The partitions that a sink worker owns now, and what was read of them. */
export class SinkAssignment {
  readonly #parts: SinkAssignmentParts;
  readonly #partitions = new Map<string, SinkPartition>();
  /** The last run of each partition that was ever here: another one begins after its end. */
  readonly #runs = new Map<string, Promise<void>>();

  constructor(parts: SinkAssignmentParts) {
    this.#parts = parts;
  }

  get partitions(): readonly SinkPartition[] {
    return [...this.#partitions.values()];
  }

  get size(): number {
    return this.#partitions.size;
  }

  get(place: TopicPartition): SinkPartition | undefined {
    return this.#partitions.get(keyOf(place));
  }

  /** Whether no partition has a batch in hand. */
  get finished(): boolean {
    for (const partition of this.#partitions.values()) if (!partition.finished) return false;
    return true;
  }

  /** Whether a partition may soon want something that the worker's loop does. */
  get inFlux(): boolean {
    for (const partition of this.#partitions.values()) {
      if (partition.paused || partition.applied === undefined || partition.startAt !== undefined) return true;
    }
    return false;
  }

  /** Takes over a whole new assignment. What is in `retained` stays as it is, and goes on; returns what is still to begin. */
  replace(partitions: readonly TopicPartition[], retained: readonly TopicPartition[], consumer: GroupConsumer): TopicPartition[] {
    const kept = new Set(retained.map(keyOf));
    for (const [key, partition] of this.#partitions) if (!kept.has(key)) this.drop(partition);
    for (const partition of this.#partitions.values()) {
      // Whether a pause has outlived the rebalance is not said; the next full buffer pauses again.
      partition.paused = false;
      consumer.resume([partition]);
      partition.resume();
    }
    return partitions.filter((partition) => !this.#partitions.has(keyOf(partition)));
  }

  begin({ place, offset, committed }: GroupStart, host: SinkPartitionHost): void {
    const { stage, plan, policies, limits, metrics } = this.#parts;
    const reader = plan.reader(place.topic);
    if (reader === undefined) {
      throw new FatalError(
        `the group assigned ${place.topic}-${place.partition}, but stage '${stage.name}' does not read '${place.topic}': all members of a group must run the same topology`,
      );
    }
    const builder = new SinkBatchBuilder({
      stage,
      partition: place,
      source: reader.source,
      policies,
      limits,
      counters: host.counters,
      topicCounters: metrics.consumed(place.topic),
    });
    const partition = new SinkPartition(place, builder, host);
    if (committed) partition.committed = offset;
    const key = keyOf(place);
    this.#partitions.set(key, partition);
    this.#runs.set(key, partition.run(offset, this.#runs.get(key)));
  }

  drop(place: TopicPartition): void {
    const partition = this.get(place);
    if (partition === undefined) return;
    this.#partitions.delete(keyOf(place));
    partition.close();
    this.#parts.onDrop(partition);
  }

  dropAll(): void {
    for (const partition of this.partitions) this.drop(partition);
  }

  /** Writes what is in hand, and stands still until `replace`. */
  finish(): void {
    for (const partition of this.#partitions.values()) partition.finish();
  }

  take(batch: FetchedBatch, consumer: GroupConsumer): void {
    const partition = this.get(batch);
    if (partition === undefined || partition.startAt !== undefined || partition.applied === undefined) return;
    partition.highWatermark = batch.highWatermark;
    partition.builder.queue.add(batch);
    this.#parts.metrics.consumed(batch.topic).bytes += batch.bytes;
    if (!partition.paused && partition.builder.queue.bytes >= this.#parts.maxBufferedBytes) {
      partition.paused = true;
      consumer.pause([partition]);
    }
  }

  /** Partitions that were paused with a full buffer go on at half of it. */
  resume(consumer: GroupConsumer): void {
    for (const partition of this.#partitions.values()) {
      if (!partition.paused || partition.builder.queue.bytes > this.#parts.maxBufferedBytes / 2) continue;
      partition.paused = false;
      consumer.resume([partition]);
    }
  }

  /** Moves the consumer to where the sink says that it is. Throws what the consumer throws, and where the log does not fit the position. */
  async move(consumer: GroupConsumer, positions: SinkPositions): Promise<void> {
    const moving = this.partitions.filter((partition) => partition.startAt !== undefined);
    if (moving.length === 0) return;
    // Read after the claim: whoever applied up to there had read these records, so the log must have them.
    const bounds = await consumer.logOffsets(moving);
    for (const partition of moving) {
      const position = partition.startAt;
      const log = bounds.get(keyOf(partition));
      if (position === undefined || log === undefined) continue;
      const readFrom = positions.readFrom(partition, position, log);
      consumer.startFrom(partition, readFrom);
      partition.paused = false;
      partition.started(readFrom);
    }
  }
}

function keyOf({ topic, partition }: TopicPartition): string {
  return topicPartitionKey(topic, partition);
}
