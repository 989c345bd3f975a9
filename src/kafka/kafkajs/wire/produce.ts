import type { TopicPartition } from '../../../model/topic-partition.ts';
import { byTopic } from './by-topic.ts';
import type { Exchange } from './exchange.ts';
import type { WireReader } from './reader.ts';

/** One sealed record batch; a request holds at most one per partition. */
export interface ProduceBatch extends TopicPartition {
  readonly bytes: Buffer;
}

export interface ProduceResult extends TopicPartition {
  readonly errorCode: number;
  readonly errorMessage: string | null;
  /** -1 where the broker does not say, as for a duplicate that it has forgotten the place of. */
  readonly baseOffset: bigint;
}

export interface ProduceAnswer {
  readonly results: readonly ProduceResult[];
}

export const PRODUCE_API_KEY = 0;
/** 8 (Kafka 2.4): the first version that says why a batch was refused. */
export const OLDEST_PRODUCE_VERSION = 8;
/** 11: the last version of transaction version 1. */
export const NEWEST_PRODUCE_VERSION = 11;
/** 12: adds its partitions to the transaction (KIP-890, transaction version 2). */
export const PRODUCE_VERSION_OF_TRANSACTION_V2 = 12;

const ALL_IN_SYNC_REPLICAS = -1;

export interface ProduceRequest {
  /** 8 to 12. */
  readonly version: number;
  readonly transactionalId: string | null;
  /** How long the leader may wait for its replicas. */
  readonly timeoutMs: number;
  readonly batches: readonly ProduceBatch[];
}

export function produceExchange({ version, transactionalId, timeoutMs, batches }: ProduceRequest): Exchange<ProduceAnswer> {
  const flexible = version >= 9;
  return {
    apiKey: PRODUCE_API_KEY,
    apiVersion: version,
    apiName: 'Produce',
    flexible,
    encode(writer) {
      const topics = byTopic(batches);
      if (flexible) {
        writer.compactNullableString(transactionalId).int16(ALL_IN_SYNC_REPLICAS).int32(timeoutMs);
        writer.compactArray(topics, (w, [topic, items]) => {
          w.compactString(topic).compactArray(items, (w2, { partition, bytes }) => w2.int32(partition).compactBytes(bytes).tags());
          w.tags();
        });
        writer.tags();
      } else {
        writer.nullableString(transactionalId).int16(ALL_IN_SYNC_REPLICAS).int32(timeoutMs);
        writer.array(topics, (w, [topic, items]) => {
          w.string(topic).array(items, (w2, { partition, bytes }) => w2.int32(partition).bytes(bytes));
        });
      }
    },
    decode(reader) {
      const topics = flexible
        ? reader.compactArray((r) => {
            const topic = r.compactString('topic');
            const results = r.compactArray((r2) => readResult(r2, topic, true), 'partition_responses');
            r.skipTags();
            return results;
          }, 'responses')
        : reader.array((r) => {
            const topic = r.string('topic');
            return r.array((r2) => readResult(r2, topic, false), 'partition_responses');
          }, 'responses');
      return { results: topics.flat() };
    },
  };
}

function readResult(reader: WireReader, topic: string, flexible: boolean): ProduceResult {
  const partition = reader.int32('index');
  const errorCode = reader.int16('error_code');
  const baseOffset = reader.int64('base_offset');
  reader.int64('log_append_time_ms');
  reader.int64('log_start_offset');
  const recordErrors = flexible
    ? reader.compactArray((r) => {
        r.int32('batch_index');
        const message = r.compactNullableString('batch_index_error_message');
        r.skipTags();
        return message;
      }, 'record_errors')
    : reader.array((r) => {
        r.int32('batch_index');
        return r.nullableString('batch_index_error_message');
      }, 'record_errors');
  const errorMessage = flexible ? reader.compactNullableString('error_message') : reader.nullableString('error_message');
  if (flexible) reader.skipTags();
  return { topic, partition, errorCode, baseOffset, errorMessage: errorMessage ?? recordErrors.find((m) => m !== null) ?? null };
}
