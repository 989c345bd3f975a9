import type { Clock } from '../model/clock.ts';
import { DeserialisationError } from '../model/errors.ts';
import type { ConsumedRecord } from '../model/record.ts';
import type { Step } from '../operators/step.ts';
import type { FailureCounters } from '../ops/metrics.ts';
import type { SubTopology } from '../topology/topology.ts';
import { buildChain } from './chain.ts';
import type { RecordCollector } from './collector.ts';
import { deadLetterHeaders } from './dead-letter.ts';
import type { InputPartition } from './input-partition.ts';
import { type FailurePolicies, OutputError, type RecordFailure, recordFailure } from './record-failure.ts';
import type { SliceBudget } from './slice-budget.ts';
import { taskId } from './task-plan.ts';

/** What a task needs of its worker. */
export interface TaskEnvironment {
  readonly applicationId: string;
  readonly collector: RecordCollector;
  readonly policies: FailurePolicies;
  readonly deadLetterTopic: string;
  readonly clock: Clock;
  readonly failureCounters: (topic: string) => FailureCounters;
}

/** Why a task stopped before its budget was used up. */
export type Interruption =
  /** The record waits for a computed topic to be loaded: `resume`, or `refuse` when there is no such topic. */
  { readonly kind: 'missing-topic'; readonly topic: string } | { readonly kind: 'failed'; readonly failure: RecordFailure };

interface TaskInput {
  readonly partition: InputPartition;
  readonly step: Step;
}

interface Pending {
  readonly input: TaskInput;
  readonly record: ConsumedRecord;
  /** The failure that the staged output tells of, if it is a dead letter. */
  readonly deadLetter: RecordFailure | undefined;
}

/** One partition number of one sub-topology: the same partition of all its source topics, and a chain of steps of its own. */
export class Task {
  readonly id: string;
  readonly subTopology: SubTopology;
  readonly partition: number;
  /** The highest timestamp that was processed; undefined before the first. */
  streamTime: number | undefined;
  committedStreamTime: number | undefined;
  readonly #environment: TaskEnvironment;
  readonly #steps: ReadonlyMap<string, Step>;
  readonly #inputs: TaskInput[] = [];
  #pending: Pending | undefined;

  constructor(subTopology: SubTopology, partition: number, environment: TaskEnvironment) {
    this.id = taskId(subTopology.id, partition);
    this.subTopology = subTopology;
    this.partition = partition;
    this.#environment = environment;
    this.#steps = buildChain(subTopology, { collector: environment.collector });
  }

  get inputs(): readonly InputPartition[] {
    return this.#inputs.map((input) => input.partition);
  }

  /** False while it is unknown where one of its partitions begins: records could come out of the order of their timestamps. */
  get runnable(): boolean {
    return this.#inputs.every((input) => input.partition.state === 'running');
  }

  get hasRecords(): boolean {
    return this.#inputs.some((input) => input.partition.queue.head !== undefined);
  }

  addInput(partition: InputPartition): void {
    const step = this.#steps.get(partition.source.name);
    if (step !== undefined) this.#inputs.push({ partition, step });
  }

  removeInput(partition: InputPartition): void {
    const index = this.#inputs.findIndex((input) => input.partition === partition);
    if (index >= 0) this.#inputs.splice(index, 1);
  }

  /** What was processed since the last commit is dropped. */
  rollBack(): void {
    this.dropPending();
    this.streamTime = this.committedStreamTime;
  }

  dropPending(): void {
    this.#pending = undefined;
  }

  /** Processes records in the order of their timestamps until the budget is used up, nothing is left or something needs the worker. */
  process(budget: SliceBudget): Interruption | undefined {
    for (;;) {
      const input = this.#next();
      if (input === undefined) return undefined;
      const record = input.partition.queue.head;
      if (record === undefined || !budget.take()) return undefined;
      const interruption = this.#processRecord(input, record);
      if (interruption !== undefined) return interruption;
    }
  }

  /** Goes on with the record that waited for a topic. */
  resume(): Interruption | undefined {
    const pending = this.#pending;
    this.#pending = undefined;
    return pending === undefined ? undefined : this.#deliver(pending.input, pending.record, pending.deadLetter);
  }

  /** The topic that the record waits for cannot be written to. */
  refuse(cause: Error): Interruption | undefined {
    const pending = this.#pending;
    this.#pending = undefined;
    if (pending === undefined) return undefined;
    return this.#failed(pending.input, pending.record, new OutputError(cause.message, { cause }), pending.deadLetter !== undefined);
  }

  /** The input whose next record is the oldest; the first of those that are equally old. */
  #next(): TaskInput | undefined {
    const inputs = this.#inputs;
    if (inputs.length === 1) return inputs[0];
    let oldest: TaskInput | undefined;
    let timestamp = Infinity;
    for (let i = 0; i < inputs.length; i++) {
      const input = inputs[i]!;
      const head = input.partition.queue.head;
      if (head !== undefined && (oldest === undefined || head.timestamp < timestamp)) {
        oldest = input;
        timestamp = head.timestamp;
      }
    }
    return oldest;
  }

  #processRecord(input: TaskInput, record: ConsumedRecord): Interruption | undefined {
    const { reader } = input.partition;
    let key: unknown;
    let value: unknown;
    try {
      key = reader.key(record);
      value = reader.value(record);
    } catch (error) {
      return this.#failed(input, record, unreadable(error), false);
    }
    try {
      input.step(key, value, record);
    } catch (error) {
      return this.#failed(input, record, error, false);
    }
    return this.#deliver(input, record, undefined);
  }

  /** Hands over what the record has staged, and goes on to the next record. Throws errors of the transaction. */
  #deliver(input: TaskInput, record: ConsumedRecord, deadLetter: RecordFailure | undefined): Interruption | undefined {
    const { collector } = this.#environment;
    let missing: string | undefined;
    try {
      missing = collector.resolve();
    } catch (error) {
      return this.#failed(input, record, error, deadLetter !== undefined);
    }
    if (missing !== undefined) {
      this.#pending = { input, record, deadLetter };
      return { kind: 'missing-topic', topic: missing };
    }
    collector.append();
    if (deadLetter !== undefined) this.#environment.failureCounters(record.topic).deadLettered++;
    this.#finish(input, record);
    return undefined;
  }

  #finish(input: TaskInput, record: ConsumedRecord): void {
    if (this.streamTime === undefined || record.timestamp > this.streamTime) this.streamTime = record.timestamp;
    input.partition.counters.records++;
    input.partition.queue.advance();
  }

  #failed(input: TaskInput, record: ConsumedRecord, thrown: unknown, asDeadLetter: boolean): Interruption | undefined {
    const { collector, policies, failureCounters, deadLetterTopic, applicationId, clock } = this.#environment;
    collector.drop();
    const failure = recordFailure(record, thrown, input.partition.source.name);
    // A dead letter that cannot be written must not become one.
    if (asDeadLetter) return { kind: 'failed', failure };
    let action;
    try {
      action = policies.decide(failure);
    } catch (error) {
      return { kind: 'failed', failure: { ...failure, error: error instanceof Error ? error : new Error(String(error)) } };
    }
    switch (action) {
      case 'fail':
        return { kind: 'failed', failure };
      case 'skip':
        failureCounters(record.topic).skipped++;
        this.#finish(input, record);
        return undefined;
      case 'dead-letter': {
        const now = clock.now();
        // Not the record's own timestamp: the topic's retention would delete the letter of an old record at once.
        const partition = (partitionCount: number): number => record.partition % partitionCount;
        collector.send(deadLetterTopic, partition, record.key, record.value, now, deadLetterHeaders(failure, applicationId, now));
        return this.#deliver(input, record, failure);
      }
    }
  }
}

function unreadable(thrown: unknown): DeserialisationError {
  if (thrown instanceof DeserialisationError) return thrown;
  return new DeserialisationError(thrown instanceof Error ? thrown.message : String(thrown), { cause: thrown });
}
