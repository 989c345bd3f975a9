import { FatalError, RetriableError } from '../../model/errors.ts';
import { topicPartitionKey, type PartitionOffset } from '../../model/topic-partition.ts';
import type { Admin, CommittedOffset, LogBounds, TopicSpec } from '../port.ts';
import type { ConnectionConfig } from './config.ts';
import { ClusterConnection } from './connection.ts';
import { lookUpOffsets, perLeader } from './offset-lookup.ts';
import { retry } from './retry.ts';
import { createTopicsExchange, type TopicAnswer } from './wire/create-topics.ts';
import { deleteRecordsExchange } from './wire/delete-records.ts';
import { deleteTopicsExchange } from './wire/delete-topics.ts';
import { topicConfigsExchange } from './wire/describe-configs.ts';
import { ErrorCode, toKafkaError } from './wire/error-code.ts';
import { EARLIEST, LATEST } from './wire/list-offsets.ts';
import type { TopicMetadata } from './wire/metadata.ts';
import { offsetFetchExchange } from './wire/offset-fetch.ts';

const NEW_TOPIC_MS = 1_000;

/**
 * Topics, log bounds and group offsets. Each call is repeated within `requestTimeout` while it throws RetriableError, which does no harm:
 * what a lost answer has done already is found done.
 */
export class KafkaAdmin implements Admin {
  readonly #connection: ClusterConnection;
  readonly #timeoutMs: number;

  constructor(config: ConnectionConfig) {
    this.#connection = new ClusterConnection(config);
    this.#timeoutMs = config.requestTimeoutMs;
  }

  async partitionCounts(topics?: readonly string[]): Promise<ReadonlyMap<string, number>> {
    if (topics?.length === 0) return new Map();
    return await this.#retry(async (remainingMs) => {
      const found = await this.#connection.metadata(topics ?? 'all', remainingMs);
      const counts = new Map<string, number>();
      for (const topic of found.topics.values()) {
        if (topic.errorCode === ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) continue;
        if (topic.errorCode !== ErrorCode.NONE) throw toKafkaError(topic.errorCode, { api: 'Metadata', topic: topic.topic });
        counts.set(topic.topic, topic.partitions.length);
      }
      return counts;
    });
  }

  async createTopics(topics: readonly TopicSpec[]): Promise<void> {
    if (topics.length === 0) return;
    await this.#retry(async (remainingMs) => {
      const controller = await this.#connection.controller(remainingMs);
      const answers = await this.#connection.send(controller, createTopicsExchange(topics, remainingMs), { timeoutMs: remainingMs });
      check('CreateTopics', answers, ErrorCode.TOPIC_ALREADY_EXISTS);
    });
    const names = topics.map(({ topic }) => topic);
    await this.#retry(async (remainingMs) => {
      const found = (await this.#connection.metadata(names, remainingMs)).topics;
      for (const name of names) requireLeaders(name, found.get(name));
    });
  }

  async deleteTopics(topics: readonly string[]): Promise<void> {
    if (topics.length === 0) return;
    await this.#retry(async (remainingMs) => {
      const controller = await this.#connection.controller(remainingMs);
      const answers = await this.#connection.send(controller, deleteTopicsExchange(topics, remainingMs), { timeoutMs: remainingMs });
      check('DeleteTopics', answers, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION);
    });
    await this.#retry(async (remainingMs) => {
      const found = (await this.#connection.metadata(topics, remainingMs)).topics;
      const left = topics.filter((topic) => found.get(topic)?.errorCode !== ErrorCode.UNKNOWN_TOPIC_OR_PARTITION);
      if (left.length > 0) throw new RetriableError(`topic '${left.join("', '")}' is still being deleted.`);
    });
  }

  async topicConfigs(topic: string): Promise<ReadonlyMap<string, string>> {
    const started = performance.now();
    return await this.#retry(async (remainingMs) => {
      const [answer] = await this.#connection.sendToAny(topicConfigsExchange([topic]), remainingMs);
      if (answer === undefined) throw new FatalError(`DescribeConfigs of topic '${topic}' answered nothing.`);
      const { errorCode, detail, configs } = answer;
      // A topic that was just created reaches the brokers one by one.
      if (errorCode === ErrorCode.UNKNOWN_TOPIC_OR_PARTITION && performance.now() - started > NEW_TOPIC_MS) throw absent(topic);
      if (errorCode !== ErrorCode.NONE) throw toKafkaError(errorCode, { api: 'DescribeConfigs', topic, detail });
      return configs;
    });
  }

  async logBounds(topic: string): Promise<readonly LogBounds[]> {
    const counts = await this.partitionCounts([topic]);
    const count = counts.get(topic);
    if (count === undefined) throw absent(topic);
    const partitions = Array.from({ length: count }, (_, partition) => ({ topic, partition }));
    const ask = async (timestamp: bigint, isolation: 'read-committed' | 'read-uncommitted') => {
      const queries = partitions.map((each) => ({ ...each, timestamp }));
      return await lookUpOffsets(this.#connection, queries, isolation, this.#timeoutMs);
    };
    // One after the other: each is a lower bound of the next one, also while the log grows.
    const start = await ask(EARLIEST, 'read-uncommitted');
    const lastStable = await ask(LATEST, 'read-committed');
    const highWatermark = await ask(LATEST, 'read-uncommitted');
    return partitions.map(({ partition }) => {
      const key = topicPartitionKey(topic, partition);
      const offset = (of: typeof start): bigint => of.get(key)?.offset ?? 0n;
      return { topic, partition, start: offset(start), lastStable: offset(lastStable), highWatermark: offset(highWatermark) };
    });
  }

  async groupOffsets(groupId: string, topics: readonly string[]): Promise<readonly CommittedOffset[]> {
    const counts = await this.partitionCounts(topics);
    const partitions = [...counts].flatMap(([topic, count]) => Array.from({ length: count }, (_, partition) => ({ topic, partition })));
    if (partitions.length === 0) return [];
    return await this.#retry(async (remainingMs) => {
      const coordinator = await this.#connection.coordinator('group', groupId, remainingMs);
      try {
        return await this.#connection.send(coordinator, offsetFetchExchange(groupId, partitions, false), { timeoutMs: remainingMs });
      } catch (error) {
        this.#connection.forgetCoordinator('group', groupId);
        throw error;
      }
    });
  }

  async deleteRecords(offsets: readonly PartitionOffset[]): Promise<void> {
    if (offsets.length === 0) return;
    await this.#retry(async (remainingMs) => {
      try {
        const groups = await perLeader(this.#connection, offsets, remainingMs);
        const answers = await Promise.all(
          [...groups].map(([nodeId, group]) =>
            this.#connection.send(nodeId, deleteRecordsExchange(group, remainingMs), { timeoutMs: remainingMs }),
          ),
        );
        check('DeleteRecords', answers.flat());
      } catch (error) {
        if (error instanceof RetriableError) await this.#connection.refresh(remainingMs);
        throw error;
      }
    });
  }

  async close(): Promise<void> {
    this.#connection.close();
  }

  #retry<T>(attempt: (remainingMs: number) => Promise<T>): Promise<T> {
    return retry(this.#timeoutMs, async (remainingMs) => await attempt(Math.ceil(remainingMs)));
  }
}

function absent(topic: string): FatalError {
  return new FatalError(`topic '${topic}' does not exist. Create it, or check its name.`);
}

function check(
  api: string,
  answers: readonly (Partial<TopicAnswer> & { topic: string; partition?: number; errorCode: number })[],
  accepted?: number,
): void {
  for (const { topic, partition, errorCode, detail } of answers) {
    if (errorCode === ErrorCode.NONE || errorCode === accepted) continue;
    throw toKafkaError(errorCode, { api, topic, ...(partition === undefined ? {} : { partition }), detail: detail ?? null });
  }
}

function requireLeaders(topic: string, found: TopicMetadata | undefined): void {
  if (found === undefined) throw toKafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, { api: 'Metadata', topic });
  if (found.errorCode !== ErrorCode.NONE) throw toKafkaError(found.errorCode, { api: 'Metadata', topic });
  const leaderless = found.partitions.find(({ leader }) => leader < 0);
  if (leaderless !== undefined) {
    throw toKafkaError(ErrorCode.LEADER_NOT_AVAILABLE, { api: 'Metadata', topic, partition: leaderless.partition });
  }
}
