import type { TopicAnswer } from './create-topics.ts';
import type { Exchange } from './exchange.ts';

/** DeleteTopics v3. */
export function deleteTopicsExchange(topics: readonly string[], timeoutMs: number): Exchange<TopicAnswer[]> {
  return {
    apiKey: 20,
    apiVersion: 3,
    apiName: 'DeleteTopics',
    flexible: false,
    encode(writer) {
      writer.array(topics, (w, topic) => w.string(topic)).int32(timeoutMs);
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      return reader.array((r) => ({ topic: r.string('topic name'), errorCode: r.int16('error_code'), detail: null }), 'responses');
    },
  };
}
