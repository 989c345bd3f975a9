import type { OffsetToCommit } from '../kafka/port.ts';
import { FatalError } from '../model/errors.ts';
import { type TopicPartition, topicPartitionKey } from '../model/topic-partition.ts';
import type { TopicCounters } from '../ops/metrics.ts';
import { InputPartition } from './input-partition.ts';
import { encodeOffsetMetadata } from './offset-metadata.ts';
import { Task, type TaskEnvironment } from './task.ts';
import { taskId, type TaskPlan } from './task-plan.ts';

/** A position that is about to be committed, as it was when the commit began. */
export interface SealedPosition {
  readonly position: OffsetToCommit;
  readonly input: InputPartition;
}

/** The partitions that a worker owns now, and the tasks that they make up. */
export class Assignment {
  readonly #plan: TaskPlan;
  readonly #environment: TaskEnvironment;
  readonly #countersOf: (topic: string) => TopicCounters;
  readonly #inputs = new Map<string, InputPartition>();
  readonly #tasks = new Map<string, Task>();
  readonly #taskOf = new Map<InputPartition, Task>();

  constructor(plan: TaskPlan, environment: TaskEnvironment, countersOf: (topic: string) => TopicCounters) {
    this.#plan = plan;
    this.#environment = environment;
    this.#countersOf = countersOf;
  }

  get tasks(): readonly Task[] {
    return [...this.#tasks.values()];
  }

  get inputs(): readonly InputPartition[] {
    return [...this.#inputs.values()];
  }

  /** Those whose position must be read from the group: new ones, and all after an outcome that is unknown. */
  get starting(): readonly InputPartition[] {
    return this.inputs.filter((input) => input.state !== 'running');
  }

  input({ topic, partition }: TopicPartition): InputPartition | undefined {
    return this.#inputs.get(topicPartitionKey(topic, partition));
  }

  /**
   * Takes over a whole new assignment. What is in `retained` and was here before stays as it is; everything else begins anew, also what was
   * here but may have been somebody else's in between. Returns what is gone.
   */
  replace(partitions: readonly TopicPartition[], retained: readonly TopicPartition[]): readonly InputPartition[] {
    const kept = new Set(retained.map(({ topic, partition }) => topicPartitionKey(topic, partition)));
    const dropped: InputPartition[] = [];
    for (const [key, input] of this.#inputs) {
      if (kept.has(key)) continue;
      dropped.push(input);
      this.drop(input);
    }
    for (const { topic, partition } of partitions) {
      const key = topicPartitionKey(topic, partition);
      if (!this.#inputs.has(key)) this.#add(key, topic, partition);
    }
    return dropped;
  }

  drop(input: InputPartition): void {
    this.#inputs.delete(topicPartitionKey(input.topic, input.partition));
    const task = this.#taskOf.get(input);
    this.#taskOf.delete(input);
    if (task === undefined) return;
    task.removeInput(input);
    if (task.inputs.length === 0) this.#tasks.delete(task.id);
  }

  dropAll(): void {
    for (const input of this.inputs) this.drop(input);
  }

  /** Each partition has to be looked up again before it is processed further. */
  verifyAll(): void {
    for (const task of this.#tasks.values()) task.dropPending();
    for (const input of this.#inputs.values()) if (input.state === 'running') input.state = 'verifying';
  }

  /** `position` is where the partition goes on. */
  started(input: InputPartition, position: bigint, stored: boolean, streamTime: number | undefined): void {
    input.startFrom(position, stored);
    const task = this.#taskOf.get(input);
    if (task === undefined || streamTime === undefined) return;
    task.committedStreamTime = Math.max(streamTime, task.committedStreamTime ?? streamTime);
    task.streamTime = task.committedStreamTime;
  }

  /** The position that it is at turned out to be the committed one. */
  confirmed(input: InputPartition): void {
    input.confirm();
    const task = this.#taskOf.get(input);
    if (task !== undefined) task.committedStreamTime = task.streamTime;
  }

  /** The positions that have moved since the last commit. */
  seal(): readonly SealedPosition[] {
    const sealed: SealedPosition[] = [];
    for (const input of this.#inputs.values()) {
      if (!input.moved) continue;
      const streamTime = this.#taskOf.get(input)?.streamTime;
      const { topic, partition } = input;
      const metadata = streamTime === undefined ? '' : encodeOffsetMetadata(streamTime);
      const { position: offset, leaderEpoch } = input.queue;
      sealed.push({ position: { topic, partition, offset, ...(leaderEpoch === undefined ? {} : { leaderEpoch }), metadata }, input });
    }
    return sealed;
  }

  committed(sealed: readonly SealedPosition[]): void {
    for (const { input, position } of sealed) {
      input.markCommitted(position.offset);
      const task = this.#taskOf.get(input);
      if (task !== undefined) task.committedStreamTime = task.streamTime;
    }
  }

  /** Drops what was processed since the last commit. `seek` moves the consumer. */
  rollBack(seek: (input: InputPartition) => void): void {
    for (const task of this.#tasks.values()) task.rollBack();
    for (const input of this.#inputs.values()) {
      if (input.state !== 'running') continue;
      input.startFrom(input.committed, input.stored);
      seek(input);
    }
  }

  #add(key: string, topic: string, partition: number): void {
    const reader = this.#plan.reader(topic);
    if (reader === undefined) {
      throw new FatalError(
        `the group assigned ${topic}-${partition}, but no stream of this topology reads '${topic}': all members of a group must run the same topology`,
      );
    }
    const input = new InputPartition({ topic, partition }, reader.source, this.#countersOf(topic));
    const id = taskId(reader.subTopology.id, partition);
    let task = this.#tasks.get(id);
    if (task === undefined) {
      task = new Task(reader.subTopology, partition, this.#environment);
      this.#tasks.set(id, task);
    }
    task.addInput(input);
    this.#inputs.set(key, input);
    this.#taskOf.set(input, task);
  }
}
