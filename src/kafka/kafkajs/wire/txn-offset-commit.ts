import type { TopicPartition } from '../../../model/topic-partition.ts';
import type { GroupMetadata, OffsetToCommit } from '../../port.ts';
import { byTopic } from './by-topic.ts';
import type { Exchange } from './exchange.ts';
import type { ProducerIdentity } from './producer-identity.ts';

export interface TxnOffsetCommitAnswer {
  readonly partitions: readonly (TopicPartition & { readonly errorCode: number })[];
}

/** 3: the first version that carries the member's generation (KIP-447). 5: also adds the offsets to the transaction (KIP-890). */
export type TxnOffsetCommitVersion = 3 | 5;

export function txnOffsetCommitExchange(
  version: TxnOffsetCommitVersion,
  transactionalId: string,
  identity: ProducerIdentity,
  group: GroupMetadata,
  offsets: readonly OffsetToCommit[],
): Exchange<TxnOffsetCommitAnswer> {
  return {
    apiKey: 28,
    apiVersion: version,
    apiName: 'TxnOffsetCommit',
    flexible: true,
    encode(writer) {
      writer.compactString(transactionalId).compactString(group.groupId).int64(identity.producerId).int16(identity.producerEpoch);
      writer.int32(group.generation).compactString(group.memberId).compactNullableString(group.groupInstanceId);
      writer.compactArray(byTopic(offsets), (w, [topic, items]) => {
        w.compactString(topic).compactArray(items, (w2, { partition, offset, leaderEpoch = -1, metadata = '' }) => {
          w2.int32(partition).int64(offset).int32(leaderEpoch).compactNullableString(metadata).tags();
        });
        w.tags();
      });
      writer.tags();
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      const topics = reader.compactArray((r) => {
        const topic = r.compactString('topic');
        const partitions = r.compactArray((r2) => {
          const result = { topic, partition: r2.int32('partition_index'), errorCode: r2.int16('error_code') };
          r2.skipTags();
          return result;
        }, 'partitions');
        r.skipTags();
        return partitions;
      }, 'topics');
      return { partitions: topics.flat() };
    },
  };
}
