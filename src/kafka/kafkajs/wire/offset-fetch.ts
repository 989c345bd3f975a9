import { RetriableError } from '../../../model/errors.ts';
import type { TopicPartition } from '../../../model/topic-partition.ts';
import type { CommittedOffset } from '../../port.ts';
import { byTopic } from './by-topic.ts';
import { ErrorCode, toKafkaError, type ErrorPlace } from './error-code.ts';
import type { Exchange } from './exchange.ts';
import type { WireReader } from './reader.ts';

const NOT_COMMITTED = -1n;

/** A transaction that commits one of the offsets is pending (KIP-447): only its end tells what is committed. */
export class UnstableOffsetError extends RetriableError {}

/**
 * OffsetFetch v7 (Kafka 2.5): the first version with `require_stable` (KIP-447), under which a partition whose offset a pending transaction
 * commits answers UNSTABLE_OFFSET_COMMIT. Partitions without a committed offset are left out. The error of one partition is the error of all.
 */
export function offsetFetchExchange(
  groupId: string,
  partitions: readonly TopicPartition[],
  requireStable: boolean,
): Exchange<CommittedOffset[]> {
  return {
    apiKey: 9,
    apiVersion: 7,
    apiName: 'OffsetFetch',
    flexible: true,
    encode(writer) {
      writer.compactString(groupId);
      writer.compactArray(byTopic(partitions), (w, [topic, items]) => {
        w.compactString(topic);
        w.compactArray(items, (each, { partition }) => each.int32(partition)).tags();
      });
      writer.boolean(requireStable).tags();
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      const answers = reader
        .compactArray((r) => {
          const topic = r.compactString('topic name');
          const items = r.compactArray((each) => readPartition(each, topic), 'partitions');
          r.skipTags();
          return items;
        }, 'topics')
        .flat();
      const errorCode = reader.int16('error_code');
      reader.skipTags();
      const place = { api: 'OffsetFetch', group: groupId };
      if (errorCode !== ErrorCode.NONE) throw toKafkaError(errorCode, place);
      const committed: CommittedOffset[] = [];
      for (const { topic, partition, offset, metadata, errorCode } of answers) {
        if (errorCode !== ErrorCode.NONE) throw partitionError(errorCode, { ...place, topic, partition });
        if (offset !== NOT_COMMITTED) committed.push({ topic, partition, offset, metadata });
      }
      return committed;
    },
  };
}

function partitionError(code: number, place: ErrorPlace): Error {
  const error = toKafkaError(code, place);
  return code === ErrorCode.UNSTABLE_OFFSET_COMMIT ? new UnstableOffsetError(error.message) : error;
}

function readPartition(reader: WireReader, topic: string): CommittedOffset & { readonly errorCode: number } {
  const partition = reader.int32('partition_index');
  const offset = reader.int64('committed_offset');
  reader.int32('committed_leader_epoch');
  const metadata = reader.compactNullableString('metadata') ?? '';
  const errorCode = reader.int16('error_code');
  reader.skipTags();
  return { topic, partition, offset, metadata, errorCode };
}
