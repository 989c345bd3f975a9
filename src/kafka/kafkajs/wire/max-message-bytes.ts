import type { Exchange } from './exchange.ts';

const TOPIC = 2;
const MAX_MESSAGE_BYTES = 'max.message.bytes';

/** DescribeConfigs v1, for `max.message.bytes` of these topics. A topic whose configuration the user may not see is absent from the answer. */
export function maxMessageBytesExchange(topics: readonly string[]): Exchange<ReadonlyMap<string, number>> {
  return {
    apiKey: 32,
    apiVersion: 1,
    apiName: 'DescribeConfigs',
    flexible: false,
    encode(writer) {
      writer.array(topics, (w, topic) =>
        w
          .int8(TOPIC)
          .string(topic)
          .array([MAX_MESSAGE_BYTES], (w2, key) => w2.string(key)),
      );
      writer.boolean(false);
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      const limits = new Map<string, number>();
      reader.array((r) => {
        r.int16('error_code');
        r.nullableString('error_message');
        r.int8('resource_type');
        const topic = r.string('resource_name');
        r.array((r2) => {
          const name = r2.string('config name');
          const value = Number(r2.nullableString('config value'));
          r2.boolean('read_only');
          r2.int8('config_source');
          r2.boolean('is_sensitive');
          r2.array((r3) => {
            r3.string('synonym name');
            r3.nullableString('synonym value');
            r3.int8('synonym source');
          }, 'synonyms');
          if (name === MAX_MESSAGE_BYTES && Number.isSafeInteger(value) && value > 0) limits.set(topic, value);
        }, 'configs');
      }, 'results');
      return limits;
    },
  };
}
