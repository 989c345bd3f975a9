import { setTimeout as sleep } from 'node:timers/promises';
import { FatalError, RetriableError } from '../../model/errors.ts';
import type { GroupConsumerOptions } from '../port.ts';
import { movingBackOff } from './back-off.ts';
import type { ClusterConnection } from './connection.ts';
import { ErrorCode, isRetriable, toKafkaError } from './wire/error-code.ts';
import type { TopicMetadata } from './wire/metadata.ts';

/** How long a topic may be missing, since one that was just created is not known everywhere at once. */
const GRACE_MS = 5_000;
const LOOK_AGAIN_MS = 200;

/** Which topics a subscription stands for at the moment. */
export class SubscribedTopics {
  readonly #connection: ClusterConnection;
  readonly #names: readonly string[];
  readonly #patterns: readonly RegExp[];
  readonly #timeoutMs: number;

  constructor(connection: ClusterConnection, { topics, patterns = [] }: GroupConsumerOptions['subscription'], timeoutMs: number) {
    this.#connection = connection;
    this.#names = [...new Set(topics)];
    // A global or sticky expression remembers where it matched last.
    this.#patterns = patterns.map(({ source, flags }) => new RegExp(source, flags.replace(/[gy]/g, '')));
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Topics with their numbers of partitions. Waits while the cluster cannot be reached. Throws FatalError that names the topics which are
   * subscribed by name and still missing after 5 s.
   */
  async find(signal: AbortSignal): Promise<ReadonlyMap<string, number>> {
    const backOff = movingBackOff();
    let missingSince: number | undefined;
    for (;;) {
      signal.throwIfAborted();
      try {
        const { counts, missing } = await this.#look();
        if (missing.length === 0) return counts;
        missingSince ??= performance.now();
        if (performance.now() - missingSince > GRACE_MS) {
          throw new FatalError(`topic '${missing.join("', '")}' does not exist. Create it, or check the name in the subscription.`);
        }
        await sleep(LOOK_AGAIN_MS, undefined, { signal });
      } catch (error) {
        if (!(error instanceof RetriableError)) throw error;
        await sleep(backOff.next(), undefined, { signal });
      }
    }
  }

  async #look(): Promise<{ readonly counts: Map<string, number>; readonly missing: string[] }> {
    const { topics } = await this.#connection.metadata(this.#patterns.length > 0 ? 'all' : this.#names, this.#timeoutMs);
    const counts = new Map<string, number>();
    const missing: string[] = [];
    for (const name of this.#names) {
      const topic = topics.get(name);
      if (topic !== undefined && isThere(topic)) counts.set(name, topic.partitions.length);
      else missing.push(name);
    }
    for (const topic of topics.values()) {
      // As Kafka's consumers do: a pattern never means the cluster's own topics.
      if (topic.internal || counts.has(topic.topic) || !this.#patterns.some((pattern) => pattern.test(topic.topic))) continue;
      if (isThere(topic)) counts.set(topic.topic, topic.partitions.length);
    }
    return { counts, missing };
  }
}

function isThere({ topic, errorCode, partitions }: TopicMetadata): boolean {
  if (errorCode !== ErrorCode.NONE && !isRetriable(errorCode)) throw toKafkaError(errorCode, { api: 'Metadata', topic });
  return partitions.length > 0 && errorCode !== ErrorCode.UNKNOWN_TOPIC_OR_PARTITION;
}
