import type { Exchange } from './exchange.ts';

const TOPIC = 2;

export interface TopicConfigs {
  readonly topic: string;
  readonly errorCode: number;
  readonly detail: string | null;
  /** Without those that have no value, or whose value the broker keeps to itself. */
  readonly configs: ReadonlyMap<string, string>;
}

/** DescribeConfigs v1 for topics. `keys`: only these; all when it is left out. */
export function topicConfigsExchange(topics: readonly string[], keys?: readonly string[]): Exchange<TopicConfigs[]> {
  return {
    apiKey: 32,
    apiVersion: 1,
    apiName: 'DescribeConfigs',
    flexible: false,
    encode(writer) {
      writer.array(topics, (w, topic) => {
        w.int8(TOPIC)
          .string(topic)
          .array(keys ?? null, (each, key) => each.string(key));
      });
      writer.boolean(false);
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      return reader.array((r) => {
        const errorCode = r.int16('error_code');
        const detail = r.nullableString('error_message');
        r.int8('resource_type');
        const topic = r.string('resource_name');
        const configs = new Map<string, string>();
        r.array((each) => {
          const name = each.string('config name');
          const value = each.nullableString('config value');
          each.boolean('read_only');
          each.int8('config_source');
          each.boolean('is_sensitive');
          each.array((synonym) => {
            synonym.string('synonym name');
            synonym.nullableString('synonym value');
            synonym.int8('synonym source');
          }, 'synonyms');
          if (value !== null) configs.set(name, value);
        }, 'configs');
        return { topic, errorCode, detail, configs };
      }, 'results');
    },
  };
}
