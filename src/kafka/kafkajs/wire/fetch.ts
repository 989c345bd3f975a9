import type { TopicPartition } from '../../../model/topic-partition.ts';
import type { Isolation } from '../../port.ts';
import { byTopic } from './by-topic.ts';
import type { Exchange } from './exchange.ts';
import type { WireReader } from './reader.ts';

export interface FetchPartition extends TopicPartition {
  /** Of the leader as the client knows it, -1 for unknown: a leader of another epoch refuses. */
  readonly leaderEpoch: number;
  readonly offset: bigint;
  readonly maxBytes: number;
}

export interface FetchRequest {
  readonly maxWaitMs: number;
  readonly minBytes: number;
  readonly maxBytes: number;
  readonly isolation: Isolation;
  /** The broker fills the answer in this order, so a partition at the end may get nothing. */
  readonly partitions: readonly FetchPartition[];
}

/** One aborted transaction of one partition. */
export interface AbortedTransaction {
  readonly producerId: bigint;
  /** Of its first record in this partition. */
  readonly firstOffset: bigint;
}

export interface FetchedPartition extends TopicPartition {
  readonly errorCode: number;
  readonly highWatermark: bigint;
  readonly lastStableOffset: bigint;
  /** In the order in which they ended. Empty under read-uncommitted. */
  readonly aborted: readonly AbortedTransaction[];
  /** Record batches; the last one may be cut off. */
  readonly records: Buffer;
}

export interface FetchAnswer {
  /** Of the whole request. */
  readonly errorCode: number;
  readonly partitions: readonly FetchedPartition[];
}

const ANY_REPLICA = -1;
const NO_SESSION = 0;
const FINAL_EPOCH = -1;
const LOG_START_OF_CONSUMERS = -1n;
const NO_RECORDS = Buffer.alloc(0);

/** Fetch v11 (Kafka 2.3), without a fetch session, from the leader. */
export function fetchExchange(request: FetchRequest): Exchange<FetchAnswer> {
  return {
    apiKey: 1,
    apiVersion: 11,
    apiName: 'Fetch',
    flexible: false,
    encode(writer) {
      writer.int32(ANY_REPLICA).int32(request.maxWaitMs).int32(request.minBytes).int32(request.maxBytes);
      writer
        .int8(request.isolation === 'read-committed' ? 1 : 0)
        .int32(NO_SESSION)
        .int32(FINAL_EPOCH);
      writer.array(byTopic(request.partitions), (w, [topic, partitions]) => {
        w.string(topic).array(partitions, (each, { partition, leaderEpoch, offset, maxBytes }) => {
          each.int32(partition).int32(leaderEpoch).int64(offset).int64(LOG_START_OF_CONSUMERS).int32(maxBytes);
        });
      });
      // No topics to forget, and no rack: a leader may then name no other replica to read from.
      writer.array([], () => undefined).string('');
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      const errorCode = reader.int16('error_code');
      reader.int32('session_id');
      const partitions = reader
        .array((r) => {
          const topic = r.string('topic');
          return r.array((each) => readPartition(each, topic), 'partitions');
        }, 'responses')
        .flat();
      return { errorCode, partitions };
    },
  };
}

function readPartition(reader: WireReader, topic: string): FetchedPartition {
  const partition = reader.int32('partition_index');
  const errorCode = reader.int16('error_code');
  const highWatermark = reader.int64('high_watermark');
  const lastStableOffset = reader.int64('last_stable_offset');
  reader.int64('log_start_offset');
  const aborted = reader.array(
    (r) => ({ producerId: r.int64('producer_id'), firstOffset: r.int64('first_offset') }),
    'aborted_transactions',
  );
  reader.int32('preferred_read_replica');
  const records = reader.nullableBytes('records') ?? NO_RECORDS;
  return { topic, partition, errorCode, highWatermark, lastStableOffset, aborted, records };
}
