import { ProcessingError, SerialisationError } from '../model/errors.ts';
import type { Header, Headers } from '../model/headers.ts';
import type { Payload, RecordContext } from '../model/record.ts';
import { topicNameFault } from '../model/topic-name.ts';
import type { SerdeContext, Serialiser } from '../serde/serde.ts';
import type { Operator } from './step.ts';
import { refusePromise, type UserFunction } from './user-function.ts';

/** What a `headers` function may answer: all headers of the output, or by name those to add to the ones that the record has. */
export type OutputHeaders = Headers | Readonly<Record<string, string | Uint8Array | null>>;

export interface ToPlan {
  readonly node: string;
  readonly topic: string | UserFunction<string>;
  readonly key: Serialiser<unknown>;
  readonly value: Serialiser<unknown>;
  readonly partitioner: ((value: unknown, key: unknown, partitionCount: number, context: RecordContext) => number | undefined) | undefined;
  readonly headers: UserFunction<OutputHeaders> | undefined;
}

/** Serialises a record and hands it to the collector, with the timestamp and the headers that it came with. */
export function to(plan: ToPlan): Operator {
  const { node, key: keySerialiser, value: valueSerialiser } = plan;
  const targetOf = typeof plan.topic === 'string' ? fixedTarget(plan.topic) : computedTarget(node, plan.topic);
  const headersOf = plan.headers === undefined ? undefined : outputHeaders(node, plan.headers);
  return (_forward, _children, task) => {
    const collector = task.collector;
    return (key, value, context) => {
      const target = targetOf(key, value, context);
      let keyPayload: Payload;
      let valuePayload: Payload;
      try {
        keyPayload = keySerialiser.serialise(key, target.key);
      } catch (error) {
        throw unwritable(node, target.key, keySerialiser, error);
      }
      try {
        valuePayload = valueSerialiser.serialise(value, target.value);
      } catch (error) {
        throw unwritable(node, target.value, valueSerialiser, error);
      }
      const headers = headersOf === undefined ? context.headers : headersOf(key, value, context);
      const partition =
        plan.partitioner && choosePartition(plan.node, plan.partitioner, collector.partitionCount(target.topic), key, value, context);
      collector.send(target.topic, partition, keyPayload, valuePayload, context.timestamp, headers);
    };
  };
}

function unwritable(node: string, { topic, part }: SerdeContext, serialiser: Serialiser<unknown>, cause: unknown): SerialisationError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new SerialisationError(`step '${node}' cannot write the ${part} for topic '${topic}' as ${serialiser.name}: ${reason}`, { cause });
}

// ------------------------------------------------------------------------------------------------------------------ topic

interface Target {
  readonly topic: string;
  readonly key: SerdeContext;
  readonly value: SerdeContext;
}

type TargetOf = (key: unknown, value: unknown, context: RecordContext) => Target;

function target(topic: string): Target {
  return { topic, key: { topic, part: 'key' }, value: { topic, part: 'value' } };
}

function fixedTarget(topic: string): TargetOf {
  const fixed = target(topic);
  return () => fixed;
}

/** So many computed topics are remembered as checked; more are checked again. */
const MAX_REMEMBERED_TOPICS = 1000;

function computedTarget(node: string, topicOf: UserFunction<string>): TargetOf {
  const checked = new Map<string, Target>();
  return (key, value, context) => {
    let topic: string;
    try {
      topic = topicOf(value, key, context);
    } catch (error) {
      throw new ProcessingError(node, error);
    }
    const known = checked.get(topic);
    if (known !== undefined) return known;
    refusePromise(node, topic);
    const fault = topicNameFault(topic);
    if (fault !== undefined) throw new ProcessingError(node, new TypeError(`the topic name that its function returned ${fault}`));
    if (checked.size === MAX_REMEMBERED_TOPICS) checked.clear();
    const found = target(topic);
    checked.set(topic, found);
    return found;
  };
}

// -------------------------------------------------------------------------------------------------------------- partition

type PartitionChoice = number | undefined | ((partitionCount: number) => number | undefined);

function choosePartition(
  node: string,
  partitioner: NonNullable<ToPlan['partitioner']>,
  partitionCount: number | undefined,
  key: unknown,
  value: unknown,
  context: RecordContext,
): PartitionChoice {
  const choose = (count: number): number | undefined => {
    let partition: number | undefined;
    try {
      partition = partitioner(value, key, count, context);
    } catch (error) {
      throw new ProcessingError(node, error);
    }
    if (partition === undefined) return undefined;
    refusePromise(node, partition);
    if (!Number.isInteger(partition) || partition < 0 || partition >= count) {
      throw new ProcessingError(
        node,
        new RangeError(`its partitioner returned ${String(partition)}, but the topic has partitions 0 to ${count - 1}`),
      );
    }
    return partition;
  };
  return partitionCount === undefined ? choose : choose(partitionCount);
}

// ---------------------------------------------------------------------------------------------------------------- headers

function outputHeaders(node: string, headersFunction: UserFunction<OutputHeaders>) {
  return (key: unknown, value: unknown, context: RecordContext): Headers => {
    let answer: OutputHeaders;
    try {
      answer = headersFunction(value, key, context);
    } catch (error) {
      throw new ProcessingError(node, error);
    }
    refusePromise(node, answer);
    if (isHeaderList(answer)) return answer;
    if (typeof answer !== 'object' || answer === null) {
      throw new ProcessingError(node, new TypeError('its headers function must return a list of headers or an object of headers to add'));
    }
    const headers: Header[] = [...context.headers];
    for (const [name, content] of Object.entries(answer)) {
      headers.push({ key: name, value: typeof content === 'string' ? Buffer.from(content, 'utf8') : content });
    }
    return headers;
  };
}

function isHeaderList(headers: OutputHeaders): headers is Headers {
  return Array.isArray(headers);
}
