import type { PartitionOffset, TopicPartition } from '../../../model/topic-partition.ts';
import { byTopic } from './by-topic.ts';
import type { Exchange } from './exchange.ts';

export interface DeletedRecords extends TopicPartition {
  readonly errorCode: number;
  /** The first offset of the log afterwards. */
  readonly lowWatermark: bigint;
}

/** DeleteRecords v1. All partitions must be led by the broker that is asked. */
export function deleteRecordsExchange(offsets: readonly PartitionOffset[], timeoutMs: number): Exchange<DeletedRecords[]> {
  return {
    apiKey: 21,
    apiVersion: 1,
    apiName: 'DeleteRecords',
    flexible: false,
    encode(writer) {
      writer.array(byTopic(offsets), (w, [topic, partitions]) => {
        w.string(topic).array(partitions, (each, { partition, offset }) => each.int32(partition).int64(offset));
      });
      writer.int32(timeoutMs);
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
              lowWatermark: each.int64('low_watermark'),
              errorCode: each.int16('error_code'),
            }),
            'partitions',
          );
        }, 'topics')
        .flat();
    },
  };
}
