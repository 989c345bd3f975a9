import type { CommittedOffset, GroupConsumer } from '../kafka/port.ts';
import { FatalError } from '../model/errors.ts';
import { topicPartitionKey } from '../model/topic-partition.ts';
import type { Assignment } from './assignment.ts';
import type { InputPartition } from './input-partition.ts';
import { decodeOffsetMetadata } from './offset-metadata.ts';

/** Where a partition begins for which the group has no committed offset. */
export type StartFrom = 'earliest' | 'latest' | 'error';

export interface StartPosition {
  readonly input: InputPartition;
  readonly offset: bigint;
  /** Whether the group keeps this offset. */
  readonly stored: boolean;
  /** The text beside the committed offset; '' when there is none. */
  readonly metadata: string;
}

/**
 * Where each of these partitions goes on: at the group's committed offset, which is the truth; else where it began (nothing was committed
 * since); else, for a new one, where the option says. Throws what the consumer throws, RetriableError while a transaction is pending.
 */
export async function startPositions(
  consumer: GroupConsumer,
  inputs: readonly InputPartition[],
  startFrom: StartFrom,
): Promise<readonly StartPosition[]> {
  const committed = new Map<string, CommittedOffset>();
  for (const offset of await consumer.committed(inputs)) committed.set(topicPartitionKey(offset.topic, offset.partition), offset);
  const positions: StartPosition[] = [];
  const without: InputPartition[] = [];
  for (const input of inputs) {
    const found = committed.get(topicPartitionKey(input.topic, input.partition));
    if (found !== undefined) positions.push({ input, offset: found.offset, stored: true, metadata: found.metadata });
    else if (input.state === 'new') without.push(input);
    else positions.push({ input, offset: input.committed, stored: input.stored, metadata: '' });
  }
  if (without.length === 0) return positions;

  if (startFrom === 'error') {
    throw new FatalError(
      `the group has no committed offset for ${without.map(({ topic, partition }) => `${topic}-${partition}`).join(', ')}, and startFrom is 'error': ` +
        "commit offsets for the group, or set startFrom to 'earliest' or 'latest'",
    );
  }
  const bounds = await consumer.logOffsets(without);
  for (const input of without) {
    const log = bounds.get(topicPartitionKey(input.topic, input.partition));
    if (log === undefined)
      throw new FatalError(`the bounds of ${input.topic}-${input.partition} are unknown to the brokers: does the topic exist?`);
    positions.push({ input, offset: startFrom === 'earliest' ? log.start : log.end, stored: false, metadata: '' });
  }
  return positions;
}

/**
 * Starts all partitions that wait for it. Of those that stood somewhere already, `confirmed` were where the group is, and `dropped` had to go
 * back.
 */
export async function startPartitions(
  consumer: GroupConsumer,
  assignment: Assignment,
  startFrom: StartFrom,
): Promise<{ readonly confirmed: number; readonly dropped: number }> {
  let confirmed = 0;
  let dropped = 0;
  for (const { input, offset, stored, metadata } of await startPositions(consumer, assignment.starting, startFrom)) {
    if (input.state === 'verifying' && offset === input.queue.position) {
      assignment.confirmed(input);
      confirmed++;
      continue;
    }
    if (input.state === 'verifying') dropped++;
    assignment.started(input, offset, stored, decodeOffsetMetadata(metadata));
    input.paused = false;
    consumer.startFrom(input, offset);
  }
  return { confirmed, dropped };
}
