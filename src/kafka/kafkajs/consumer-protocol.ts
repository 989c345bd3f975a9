import type { TopicPartition } from '../../model/topic-partition.ts';
import { byTopic } from './wire/by-topic.ts';
import { WireReader } from './wire/reader.ts';
import { WireWriter } from './wire/writer.ts';

/*
 * The bytes inside JoinGroup and SyncGroup, as Kafka's own consumers write them (ConsumerProtocolSubscription.json and
 * ConsumerProtocolAssignment.json), so that Kafka's tools can describe the group.
 */

export interface Subscription {
  readonly topics: readonly string[];
  readonly userData: Buffer;
  /** What the member owned in `generation`. */
  readonly owned: readonly TopicPartition[];
  /** -1 for a member that was in none. */
  readonly generation: number;
}

/** Version 2 added the generation (KIP-792), by which a leader tells claims that are out of date. */
const SUBSCRIPTION_VERSION = 2;
const ASSIGNMENT_VERSION = 1;
const NO_BYTES = Buffer.alloc(0);

export function encodeSubscription({ topics, userData, owned, generation }: Subscription): Buffer {
  const writer = new WireWriter();
  writer
    .int16(SUBSCRIPTION_VERSION)
    .array(topics, (w, topic) => w.string(topic))
    .bytes(userData);
  writePartitions(writer, owned);
  return writer.int32(generation).toBuffer();
}

/** Reads every version: fields of later ones are passed over, those of earlier ones are empty. */
export function decodeSubscription(bytes: Buffer): Subscription {
  const reader = new WireReader(bytes, 'subscription of a group member');
  const version = reader.int16('version');
  return {
    topics: reader.array((r) => r.string('topic'), 'topics'),
    userData: reader.nullableBytes('user_data') ?? NO_BYTES,
    owned: version >= 1 ? readPartitions(reader, 'owned_partitions') : [],
    generation: version >= 2 ? reader.int32('generation_id') : -1,
  };
}

export function encodeAssignment(partitions: readonly TopicPartition[], userData: Buffer = NO_BYTES): Buffer {
  const writer = new WireWriter();
  writer.int16(ASSIGNMENT_VERSION);
  writePartitions(writer, partitions);
  return writer.bytes(userData).toBuffer();
}

/** A member that joined after the leader had assigned gets no bytes at all: no partitions. */
export function decodeAssignment(bytes: Buffer): TopicPartition[] {
  if (bytes.length === 0) return [];
  const reader = new WireReader(bytes, 'assignment of a group member');
  reader.int16('version');
  return readPartitions(reader, 'assigned_partitions');
}

/** What the leader's assignor tells the member beside its partitions; empty when nothing. */
export function assignmentUserData(bytes: Buffer): Buffer {
  if (bytes.length === 0) return NO_BYTES;
  const reader = new WireReader(bytes, 'assignment of a group member');
  reader.int16('version');
  readPartitions(reader, 'assigned_partitions');
  return reader.nullableBytes('user_data') ?? NO_BYTES;
}

function writePartitions(writer: WireWriter, partitions: readonly TopicPartition[]): void {
  writer.array(byTopic(partitions), (w, [topic, items]) => {
    w.string(topic).array(items, (each, { partition }) => each.int32(partition));
  });
}

function readPartitions(reader: WireReader, field: string): TopicPartition[] {
  return reader
    .array((r) => {
      const topic = r.string('topic');
      return r.array((each) => ({ topic, partition: each.int32('partition') }), 'partitions');
    }, field)
    .flat();
}
