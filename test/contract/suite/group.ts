import type { Assignor, ConsumerEvent, GroupConsumer } from '../../../src/kafka/port.ts';
import type { ConsumedRecord } from '../../../src/model/record.ts';
import { topicPartitionKey, type TopicPartition } from '../../../src/model/topic-partition.ts';
import { recordsOf } from './log.ts';

const DEADLINE_MS = 20_000;

/** Deals the partitions out in turn, over the members in the order of their ids. */
export function dealingAssignor(name = 'deal'): Assignor {
  return {
    name,
    userData: () => Buffer.from(name),
    assign(members, partitionCounts) {
      const sorted = members.toSorted((a, b) => (a.memberId < b.memberId ? -1 : 1));
      const shares = new Map(sorted.map(({ memberId }) => [memberId, [] as TopicPartition[]]));
      let next = 0;
      for (const [topic, count] of partitionCounts) {
        for (let partition = 0; partition < count; partition++) {
          const member = sorted[next++ % sorted.length];
          if (member !== undefined) shares.get(member.memberId)?.push({ topic, partition });
        }
      }
      return shares;
    },
  };
}

export type EventOf<Type extends ConsumerEvent['type']> = Extract<ConsumerEvent, { type: Type }>;

/** Polls until `done` says so, and gives all events that came. */
export async function pollUntil(
  consumer: GroupConsumer,
  done: (events: readonly ConsumerEvent[]) => boolean,
  deadlineMs = DEADLINE_MS,
): Promise<ConsumerEvent[]> {
  const events: ConsumerEvent[] = [];
  const deadline = performance.now() + deadlineMs;
  while (!done(events)) {
    if (performance.now() > deadline) throw new Error(`not within ${deadlineMs} ms; came: ${events.map(({ type }) => type).join(', ')}`);
    events.push(...(await consumer.poll(100)));
  }
  return events;
}

/** Polls until an event of this type comes, and gives it. */
export async function nextEvent<Type extends ConsumerEvent['type']>(
  consumer: GroupConsumer,
  type: Type,
  deadlineMs = DEADLINE_MS,
): Promise<EventOf<Type>> {
  const events = await pollUntil(consumer, (came) => came.some((event) => event.type === type), deadlineMs);
  return events.find((event) => event.type === type) as EventOf<Type>;
}

/** Polls until this many records have come, after starting every partition that is assigned from `from`. */
export async function readRecords(
  consumer: GroupConsumer,
  count: number,
  from?: (partition: TopicPartition) => bigint,
): Promise<ConsumedRecord[]> {
  const records: ConsumedRecord[] = [];
  let seen = 0;
  await pollUntil(consumer, (events) => {
    for (const event of events.slice(seen)) {
      seen++;
      if (event.type === 'batch') records.push(...recordsOf(event.batch));
      if (event.type === 'assigned' && from !== undefined) {
        for (const partition of event.partitions) consumer.startFrom(partition, from(partition));
      }
    }
    return records.length >= count;
  });
  return records;
}

/** Joins, and starts each partition at its committed offset or at the start of its log. */
export async function joinAndStart(consumer: GroupConsumer): Promise<EventOf<'assigned'>> {
  const assigned = await nextEvent(consumer, 'assigned');
  const committed = await consumer.committed(assigned.partitions);
  const logs = await consumer.logOffsets(assigned.partitions);
  for (const partition of assigned.partitions) {
    const found = committed.find((each) => each.topic === partition.topic && each.partition === partition.partition);
    const start = found?.offset ?? logs.get(topicPartitionKey(partition.topic, partition.partition))?.start ?? 0n;
    consumer.startFrom(partition, start);
  }
  return assigned;
}
