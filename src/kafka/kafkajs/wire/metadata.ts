import type { Exchange } from './exchange.ts';
import type { WireReader } from './reader.ts';

export interface BrokerMetadata {
  readonly nodeId: number;
  readonly host: string;
  readonly port: number;
  readonly rack: string | null;
}

export interface PartitionMetadata {
  readonly partition: number;
  /** 0, or why there is no usable leader. */
  readonly errorCode: number;
  /** Node id, -1 when there is none. */
  readonly leader: number;
  /** -1 when the broker does not know it. */
  readonly leaderEpoch: number;
  readonly replicas: readonly number[];
  readonly inSyncReplicas: readonly number[];
}

export interface TopicMetadata {
  readonly topic: string;
  /** 0, or why the topic is not usable: UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, TOPIC_AUTHORIZATION_FAILED. */
  readonly errorCode: number;
  readonly internal: boolean;
  /** In the order of their numbers. */
  readonly partitions: readonly PartitionMetadata[];
}

export interface ClusterMetadata {
  readonly brokers: readonly BrokerMetadata[];
  /** -1 when none is known. */
  readonly controllerId: number;
  readonly topics: ReadonlyMap<string, TopicMetadata>;
}

/** Metadata v7 (Kafka 2.1): the first version with leader epochs. Never creates a topic. */
export function metadataExchange(topics: readonly string[] | 'all'): Exchange<ClusterMetadata> {
  return {
    apiKey: 3,
    apiVersion: 7,
    apiName: 'Metadata',
    flexible: false,
    encode(writer) {
      writer.array(topics === 'all' ? null : topics, (w, topic) => w.string(topic)).boolean(false);
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      const brokers = reader.array(readBroker, 'brokers');
      reader.nullableString('cluster_id');
      const controllerId = reader.int32('controller_id');
      const list = reader.array(readTopic, 'topics');
      return { brokers, controllerId, topics: new Map(list.map((topic) => [topic.topic, topic])) };
    },
  };
}

function readBroker(reader: WireReader): BrokerMetadata {
  return {
    nodeId: reader.int32('node_id'),
    host: reader.string('host'),
    port: reader.int32('port'),
    rack: reader.nullableString('rack'),
  };
}

function readTopic(reader: WireReader): TopicMetadata {
  const errorCode = reader.int16('topic error_code');
  const topic = reader.string('topic name');
  const internal = reader.boolean('is_internal');
  const partitions = reader.array(readPartition, 'partitions').toSorted((a, b) => a.partition - b.partition);
  return { topic, errorCode, internal, partitions };
}

function readPartition(reader: WireReader): PartitionMetadata {
  const errorCode = reader.int16('partition error_code');
  const partition = reader.int32('partition_index');
  const leader = reader.int32('leader_id');
  const leaderEpoch = reader.int32('leader_epoch');
  const replicas = reader.array((r) => r.int32('replica'), 'replica_nodes');
  const inSyncReplicas = reader.array((r) => r.int32('replica'), 'isr_nodes');
  reader.array((r) => r.int32('replica'), 'offline_replicas');
  return { partition, errorCode, leader, leaderEpoch, replicas, inSyncReplicas };
}
