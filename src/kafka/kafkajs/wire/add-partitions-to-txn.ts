import type { TopicPartition } from '../../../model/topic-partition.ts';
import { byTopic } from './by-topic.ts';
import type { Exchange } from './exchange.ts';
import type { ProducerIdentity } from './producer-identity.ts';

export interface AddPartitionsAnswer {
  readonly partitions: readonly (TopicPartition & { readonly errorCode: number })[];
}

/** AddPartitionsToTxn v1: all partitions are added, or none. */
export function addPartitionsToTxnExchange(
  transactionalId: string,
  identity: ProducerIdentity,
  partitions: readonly TopicPartition[],
): Exchange<AddPartitionsAnswer> {
  return {
    apiKey: 24,
    apiVersion: 1,
    apiName: 'AddPartitionsToTxn',
    flexible: false,
    encode(writer) {
      writer.string(transactionalId).int64(identity.producerId).int16(identity.producerEpoch);
      writer.array(byTopic(partitions), (w, [topic, items]) => {
        w.string(topic).array(items, (w2, { partition }) => w2.int32(partition));
      });
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      const topics = reader.array((r) => {
        const topic = r.string('topic');
        return r.array((r2) => ({ topic, partition: r2.int32('partition_index'), errorCode: r2.int16('partition_error_code') }), 'results');
      }, 'results_by_topic');
      return { partitions: topics.flat() };
    },
  };
}
