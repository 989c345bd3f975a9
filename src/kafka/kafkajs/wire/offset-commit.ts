import type { TopicPartition } from '../../../model/topic-partition.ts';
import type { OffsetToCommit } from '../../port.ts';
import { byTopic } from './by-topic.ts';
import type { Exchange } from './exchange.ts';
import { writeMember, type Member } from './member.ts';

export interface CommitAnswer extends TopicPartition {
  readonly errorCode: number;
}

const UNKNOWN_LEADER_EPOCH = -1;

/** OffsetCommit v7 (Kafka 2.3): the first version with `group.instance.id`. */
export function offsetCommitExchange(member: Member, offsets: readonly OffsetToCommit[]): Exchange<CommitAnswer[]> {
  return {
    apiKey: 8,
    apiVersion: 7,
    apiName: 'OffsetCommit',
    flexible: false,
    encode(writer) {
      writeMember(writer, member).array(byTopic(offsets), (w, [topic, partitions]) => {
        w.string(topic).array(partitions, (each, { partition, offset, leaderEpoch, metadata }) => {
          each
            .int32(partition)
            .int64(offset)
            .int32(leaderEpoch ?? UNKNOWN_LEADER_EPOCH)
            .nullableString(metadata ?? '');
        });
      });
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      return reader
        .array((r) => {
          const topic = r.string('topic name');
          return r.array(
            (each) => ({ topic, partition: each.int32('partition_index'), errorCode: each.int16('error_code') }),
            'partitions',
          );
        }, 'topics')
        .flat();
    },
  };
}
