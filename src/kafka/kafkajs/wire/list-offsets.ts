import type { TopicPartition } from '../../../model/topic-partition.ts';
import type { Isolation } from '../../port.ts';
import type { Exchange } from './exchange.ts';
import { byTopic } from './by-topic.ts';

/** Asks for the first offset of the log. */
export const EARLIEST = -2n;
/** Asks for the end of the log: the high watermark, or under read-committed the last stable offset. */
export const LATEST = -1n;

export interface OffsetQuery extends TopicPartition {
  /** EARLIEST, LATEST, or epoch milliseconds: the first record at or after that time. */
  readonly timestamp: bigint;
}

export interface OffsetAnswer extends TopicPartition {
  readonly errorCode: number;
  /** -1 when no record is at or after the asked time. */
  readonly timestamp: bigint;
  readonly offset: bigint;
  readonly leaderEpoch: number;
}

/** ListOffsets v5 (Kafka 2.2). All partitions must be led by the broker that is asked. */
export function listOffsetsExchange(queries: readonly OffsetQuery[], isolation: Isolation): Exchange<OffsetAnswer[]> {
  return {
    apiKey: 2,
    apiVersion: 5,
    apiName: 'ListOffsets',
    flexible: false,
    encode(writer) {
      writer.int32(-1).int8(isolation === 'read-committed' ? 1 : 0);
      writer.array(byTopic(queries), (w, [topic, partitions]) => {
        w.string(topic).array(partitions, (each, { partition, timestamp }) => each.int32(partition).int32(-1).int64(timestamp));
      });
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      return reader
        .array((r) => {
          const topic = r.string('topic name');
          return r.array(
            (each) => ({
              topic,
              partition: each.int32('partition_index'),
              errorCode: each.int16('error_code'),
              timestamp: each.int64('timestamp'),
              offset: each.int64('offset'),
              leaderEpoch: each.int32('leader_epoch'),
            }),
            'partitions',
          );
        }, 'topics')
        .flat();
    },
  };
}
