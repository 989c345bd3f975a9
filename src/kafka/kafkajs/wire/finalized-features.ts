import type { Exchange } from './exchange.ts';

const FINALIZED_FEATURES_TAG = 2;

export interface FinalizedFeatures {
  readonly errorCode: number;
  /** Name to level, of the features that the whole cluster has agreed on. */
  readonly levels: ReadonlyMap<string, number>;
}

/** ApiVersions v3 (Kafka 2.4), for what kafkajs does not read of its answer: the features of KIP-584. */
export function finalizedFeaturesExchange(): Exchange<FinalizedFeatures> {
  return {
    apiKey: 18,
    apiVersion: 3,
    apiName: 'ApiVersions',
    flexible: true,
    encode(writer) {
      writer.compactString('tidemark').compactString('0').tags();
    },
    decode(reader) {
      const errorCode = reader.int16('error_code');
      reader.compactArray((r) => {
        r.raw(6, 'api_key and versions');
        r.skipTags();
      }, 'api_keys');
      reader.int32('throttle_time_ms');
      const levels = new Map<string, number>();
      for (let tags = reader.uvarint('tagged fields'); tags > 0; tags--) {
        const tag = reader.uvarint('tag');
        const size = reader.uvarint('tag size');
        if (tag !== FINALIZED_FEATURES_TAG) {
          reader.raw(size, 'tagged field');
          continue;
        }
        reader.compactArray((r) => {
          const name = r.compactString('feature name');
          levels.set(name, r.int16('max_version_level'));
          r.int16('min_version_level');
          r.skipTags();
        }, 'finalized_features');
      }
      return { errorCode, levels };
    },
  };
}
