import { FatalError, RetriableError } from '../../model/errors.ts';
import type { Headers } from '../../model/headers.ts';
import type { Payload } from '../../model/record.ts';
import type { Producer, ProducerOptions } from '../port.ts';
import type { ConnectionConfig } from './config.ts';
import { ClusterConnection } from './connection.ts';
import { senderOptions } from './producer-config.ts';
import { Sender, type SenderOptions } from './sender.ts';
import { topicConfigsExchange } from './wire/describe-configs.ts';
import { ErrorCode, isRetriable, toKafkaError } from './wire/error-code.ts';
import type { TopicMetadata } from './wire/metadata.ts';
import { soleRecordBytes } from './wire/record-batch-encoder.ts';

const MAX_MESSAGE_BYTES = 'max.message.bytes';
/** Kafka's default of it, for topics whose configuration the user may not see. */
const DEFAULT_MAX_MESSAGE_BYTES = 1_048_588;
/** A topic that was created a moment ago may not be known to every broker yet. */
const NEW_TOPIC_GRACE_MS = 500;
const METADATA_BACK_OFF_MS = 50;

/** What producers with and without transactions share: topics, buffers and sending. */
export abstract class BufferedProducer implements Producer {
  protected readonly connection: ClusterConnection;
  protected readonly sender: Sender;
  protected readonly options: SenderOptions;

  protected constructor(config: ConnectionConfig, options: ProducerOptions) {
    this.options = senderOptions(options);
    this.connection = new ClusterConnection({ ...config, clientId: options.clientId ?? config.clientId });
    this.sender = new Sender(this.connection, this.options);
  }

  /** Throws when this is not the time for records. */
  protected abstract assertOpen(call: string): void;

  async loadTopics(topics: readonly string[]): Promise<void> {
    if (topics.length === 0) return;
    const deadline = performance.now() + this.options.requestTimeoutMs;
    const found = await this.#describe([...new Set(topics)], deadline);
    const names = found.map(({ topic }) => topic);
    const answers = await this.connection.sendToAny(
      topicConfigsExchange(names, [MAX_MESSAGE_BYTES]),
      Math.max(1, deadline - performance.now()),
    );
    const limits = new Map(answers.map(({ topic, configs }) => [topic, Number(configs.get(MAX_MESSAGE_BYTES))]));
    for (const { topic, partitions } of found) {
      this.sender.setTopic(topic, partitions.length, limits.get(topic) || DEFAULT_MAX_MESSAGE_BYTES);
    }
  }

  partitionCount(topic: string): number | undefined {
    return this.sender.partitionCount(topic);
  }

  maxRecordBytes(topic: string): number {
    return this.sender.maxRecordBytes(topic);
  }

  recordBytes(key: Payload, value: Payload, headers: Headers): number {
    return soleRecordBytes(key, value, headers);
  }

  append(topic: string, partition: number, key: Payload, value: Payload, timestamp: number, headers: Headers): void {
    this.assertOpen('append');
    this.sender.append(topic, partition, key, value, timestamp, headers);
  }

  get bufferedBytes(): number {
    return this.sender.bufferedBytes;
  }

  ready(): Promise<void> {
    return this.sender.ready();
  }

  async flush(): Promise<void> {
    this.assertOpen('flush');
    await this.sender.flush();
  }

  async close(_timeoutMs?: number): Promise<void> {
    this.sender.fail(new FatalError('The producer is closed.'));
    this.connection.close();
  }

  /** The metadata of every topic, asked again while one is not usable yet. */
  async #describe(topics: readonly string[], deadline: number): Promise<TopicMetadata[]> {
    const unknownUntil = performance.now() + NEW_TOPIC_GRACE_MS;
    for (;;) {
      const { topics: found } = await this.connection.metadata(topics, Math.max(1, deadline - performance.now()));
      const failed = topics.find((topic) => found.get(topic)?.errorCode !== ErrorCode.NONE);
      if (failed === undefined) return topics.map((topic) => found.get(topic)!);
      const code = found.get(failed)?.errorCode ?? ErrorCode.UNKNOWN_TOPIC_OR_PARTITION;
      const unknown = code === ErrorCode.UNKNOWN_TOPIC_OR_PARTITION;
      const waitUntil = unknown ? Math.min(unknownUntil, deadline) : deadline;
      if (!isRetriable(code) || performance.now() + METADATA_BACK_OFF_MS > waitUntil) {
        if (unknown) throw new FatalError(`Topic '${failed}' does not exist. Create it, or check its name.`);
        throw toKafkaError(code, { api: 'Metadata', topic: failed });
      }
      await new Promise((resolve) => setTimeout(resolve, METADATA_BACK_OFF_MS));
      if (this.connection.closed) throw new RetriableError('The producer was closed while it learned about its topics.');
    }
  }
}
