import { RetriableError } from '../../model/errors.ts';
import { topicPartitionKey } from '../../model/topic-partition.ts';
import type { Isolation } from '../port.ts';
import type { ClusterConnection } from './connection.ts';
import { retry } from './retry.ts';
import { ErrorCode, toKafkaError } from './wire/error-code.ts';
import { listOffsetsExchange, type OffsetAnswer, type OffsetQuery } from './wire/list-offsets.ts';

/** Asks the leader of each partition for an offset. Repeated within the deadline while leaders move. Keyed by `topicPartitionKey`. */
export function lookUpOffsets(
  connection: ClusterConnection,
  queries: readonly OffsetQuery[],
  isolation: Isolation,
  timeoutMs: number,
): Promise<ReadonlyMap<string, OffsetAnswer>> {
  const found = new Map<string, OffsetAnswer>();
  let missing = queries;
  return retry(timeoutMs, async (remainingMs) => {
    try {
      const groups = await perLeader(connection, missing, remainingMs);
      const answers = await Promise.all(
        [...groups].map(([nodeId, group]) => connection.send(nodeId, listOffsetsExchange(group, isolation), { timeoutMs: remainingMs })),
      );
      for (const answer of answers.flat()) {
        const { topic, partition, errorCode } = answer;
        if (errorCode !== ErrorCode.NONE) throw toKafkaError(errorCode, { api: 'ListOffsets', topic, partition });
        found.set(topicPartitionKey(topic, partition), answer);
      }
    } catch (error) {
      if (error instanceof RetriableError) {
        missing = missing.filter(({ topic, partition }) => !found.has(topicPartitionKey(topic, partition)));
        await connection.refresh(remainingMs);
      }
      throw error;
    }
    return found;
  });
}

/** Groups what is to be done by the node that leads the partition. */
export async function perLeader<T extends { readonly topic: string; readonly partition: number }>(
  connection: ClusterConnection,
  items: readonly T[],
  timeoutMs: number,
): Promise<ReadonlyMap<number, T[]>> {
  const groups = new Map<number, T[]>();
  for (const item of items) {
    const { nodeId } = await connection.leader(item.topic, item.partition, timeoutMs);
    const group = groups.get(nodeId);
    if (group === undefined) groups.set(nodeId, [item]);
    else group.push(item);
  }
  return groups;
}
