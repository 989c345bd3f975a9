import type { TopicSpec } from '../../port.ts';
import type { Exchange } from './exchange.ts';

export interface TopicAnswer {
  readonly topic: string;
  readonly errorCode: number;
  readonly detail: string | null;
}

/** CreateTopics v4 (Kafka 2.4): the first version in which the broker knows the default replication factor (-1). */
export function createTopicsExchange(topics: readonly TopicSpec[], timeoutMs: number): Exchange<TopicAnswer[]> {
  return {
    apiKey: 19,
    apiVersion: 4,
    apiName: 'CreateTopics',
    flexible: false,
    encode(writer) {
      writer.array(topics, (w, { topic, partitions, replicationFactor = -1, configs = {} }) => {
        w.string(topic)
          .int32(partitions)
          .int16(replicationFactor)
          .array([], () => {})
          .array(Object.entries(configs), (each, [name, value]) => each.string(name).nullableString(value));
      });
      writer.int32(timeoutMs).boolean(false);
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      return reader.array(
        (r) => ({ topic: r.string('topic name'), errorCode: r.int16('error_code'), detail: r.nullableString('error_message') }),
        'topics',
      );
    },
  };
}
