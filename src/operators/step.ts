import type { Headers } from '../model/headers.ts';
import type { Payload, RecordContext } from '../model/record.ts';

/** What happens to one record at one node: synchronous; what it passes on goes to the steps that it was built with. */
export type Step = (key: unknown, value: unknown, context: RecordContext) => void;

/** The only exit of a task for records that go to Kafka. */
export interface Collector {
  /** The partition count of a topic, if it is known already. */
  partitionCount(topic: string): number | undefined;
  /**
   * Stages one output of the record being processed; it is dropped if the processing of that record throws. `partition` undefined: by
   * murmur2 of the key as the Java client does, without a key round robin per record.
   * Where the partitioner needs a count which is not known yet, pass it as a function: it is called when the count is known, and may answer
   * undefined too.
   */
  send(
    topic: string,
    partition: number | undefined | ((partitionCount: number) => number | undefined),
    key: Payload,
    value: Payload,
    timestamp: number,
    headers: Headers,
  ): void;
}

/** What a sink stage's chain ends in: takes the values that are to leave Kafka. */
export type Emit = (key: unknown, value: unknown, context: RecordContext) => void;

/** What a task offers to its nodes when they are built. */
export interface TaskContext {
  readonly collector: Collector;
  /** Present in a sink stage only. */
  readonly emit?: Emit;
}

/**
 * A node's behaviour: built once per task from the steps of its children (in the order in which they were added).
 * `forward(key, value, context)` hands a record to all of them.
 */
export type Operator = (forward: Step, children: ReadonlyMap<string, Step>, task: TaskContext) => Step;
