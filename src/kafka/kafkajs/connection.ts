import type { TidemarkError } from '../../model/errors.ts';
import { FatalError, RetriableError } from '../../model/errors.ts';
import { topicPartitionKey } from '../../model/topic-partition.ts';
import { BrokerLink, type SendOptions } from './broker-link.ts';
import type { BrokerAddress, ConnectionConfig } from './config.ts';
import { BrokerUnreachableError } from './connection-error.ts';
import { createRawCluster, type RawCluster, type VersionRange } from './raw-cluster.ts';
import { ErrorCode, errorName, toKafkaError } from './wire/error-code.ts';
import type { Exchange } from './wire/exchange.ts';
import { findCoordinatorExchange, type CoordinatorType } from './wire/find-coordinator.ts';
import { metadataExchange, type ClusterMetadata, type TopicMetadata } from './wire/metadata.ts';

const COORDINATOR_BACK_OFF_MS = 100;

export interface Leader {
  readonly nodeId: number;
  /** -1 when the broker does not know it. */
  readonly epoch: number;
}

/**
 * The connections of one user to a cluster, one per broker, with what is known of its topics and coordinators.
 *
 * A broker works on the requests of one connection one after the other: a Fetch that waits for data, or a JoinGroup that waits for the other
 * members, holds up everything behind it. So whoever fetches, whoever coordinates and whoever produces each has a ClusterConnection of its own.
 *
 * Nothing is repeated here but look-ups. Every method throws BrokerUnreachableError when a request was certainly not executed,
 * ConnectionLostError when it may have been, and FatalError when login, TLS or the broker's version cannot work.
 */
export class ClusterConnection {
  readonly #config: ConnectionConfig;
  readonly #cluster: RawCluster;
  readonly #nodes = new Map<number, BrokerLink>();
  readonly #seeds: BrokerLink[];
  readonly #topics = new Map<string, TopicMetadata>();
  readonly #coordinators = new Map<string, number>();
  #controllerId = -1;
  #refreshing: Promise<void> | undefined;
  #nextSeed = 0;
  #closed = false;

  constructor(config: ConnectionConfig) {
    this.#config = config;
    this.#cluster = createRawCluster(config);
    this.#seeds = config.brokers.map((address) => this.#link(address));
  }

  /** Learns the brokers of the cluster. Not required: every other call does so when it must. */
  async connect(timeoutMs = this.#config.requestTimeoutMs): Promise<void> {
    if (this.#nodes.size === 0) await this.metadata([], timeoutMs);
  }

  /** Fails what is in flight and closes the sockets. Never throws. */
  close(): void {
    this.#closed = true;
    for (const link of [...this.#nodes.values(), ...this.#seeds]) link.close();
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Sends one request to one broker, once. */
  send<T>(nodeId: number, exchange: Exchange<T>, options?: Partial<SendOptions>): Promise<T> {
    const link = this.#nodes.get(nodeId);
    if (link === undefined) return Promise.reject(this.#unknownNode(nodeId));
    return link.send(exchange, { timeoutMs: this.#config.requestTimeoutMs, ...options });
  }

  /** Sends one request that any broker can answer, and asks the next one when a broker cannot be reached or does not answer. */
  async sendToAny<T>(exchange: Exchange<T>, timeoutMs = this.#config.requestTimeoutMs): Promise<T> {
    const deadline = performance.now() + timeoutMs;
    const failures: string[] = [];
    for (const link of this.#candidates()) {
      const remaining = deadline - performance.now();
      if (remaining <= 0) break;
      try {
        return await link.send(exchange, { timeoutMs: remaining });
      } catch (error) {
        if (!(error instanceof RetriableError)) throw error;
        failures.push(error.message);
      }
    }
    throw new BrokerUnreachableError(`no broker answered ${exchange.apiName} within ${timeoutMs} ms: ${failures.join('; ')}`);
  }

  /** The versions of an api that a broker speaks; undefined when it does not know it. */
  async versions(nodeId: number, apiKey: number, timeoutMs = this.#config.requestTimeoutMs): Promise<VersionRange | undefined> {
    const link = this.#nodes.get(nodeId);
    if (link === undefined) throw this.#unknownNode(nodeId);
    return (await link.versions(timeoutMs))[apiKey];
  }

  /**
   * Asks a broker about these topics and remembers the answer; of 'all', only what was asked for by name before. A topic's error stands in its
   * `errorCode`; nothing is thrown for it.
   */
  async metadata(topics: readonly string[] | 'all', timeoutMs = this.#config.requestTimeoutMs): Promise<ClusterMetadata> {
    const metadata = await this.sendToAny(metadataExchange(topics), timeoutMs);
    this.#learn(metadata, topics === 'all');
    return metadata;
  }

  /** Asks again about all topics that were asked for one by one. Calls at the same time share one request. */
  refresh(timeoutMs = this.#config.requestTimeoutMs): Promise<void> {
    this.#refreshing ??= this.metadata([...this.#topics.keys()], timeoutMs)
      .then(() => undefined)
      .finally(() => {
        this.#refreshing = undefined;
      });
    return this.#refreshing;
  }

  /** What is known of a topic, without asking. */
  knownTopic(topic: string): TopicMetadata | undefined {
    return this.#topics.get(topic);
  }

  /** The leader as far as it is known, without asking. */
  knownLeader(topic: string, partition: number): Leader | undefined {
    const known = this.#topics.get(topic)?.partitions[partition];
    return known === undefined || known.leader < 0 || !this.#nodes.has(known.leader)
      ? undefined
      : { nodeId: known.leader, epoch: known.leaderEpoch };
  }

  /** The leader of a partition; asks when none is known. RetriableError while there is none. */
  async leader(topic: string, partition: number, timeoutMs = this.#config.requestTimeoutMs): Promise<Leader> {
    const known = this.knownLeader(topic, partition);
    if (known !== undefined) return known;
    const found = (await this.metadata([topic], timeoutMs)).topics.get(topic);
    const leader = this.knownLeader(topic, partition);
    if (leader !== undefined) return leader;
    const place = { api: 'Metadata', topic, partition };
    if (found !== undefined && found.errorCode !== ErrorCode.NONE) throw toKafkaError(found.errorCode, place);
    const code = found?.partitions[partition]?.errorCode;
    if (code === undefined) {
      throw new FatalError(
        `${topicPartitionKey(topic, partition)} does not exist: the topic has ${found?.partitions.length ?? 0} partitions.`,
      );
    }
    throw code === ErrorCode.NONE || code === ErrorCode.REPLICA_NOT_AVAILABLE
      ? toKafkaError(ErrorCode.LEADER_NOT_AVAILABLE, place)
      : toKafkaError(code, place);
  }

  /** The node that leads the cluster's metadata, for topics to be created and deleted. In KRaft any broker forwards to it. */
  async controller(timeoutMs = this.#config.requestTimeoutMs): Promise<number> {
    if (!this.#nodes.has(this.#controllerId)) await this.metadata([], timeoutMs);
    if (this.#nodes.has(this.#controllerId)) return this.#controllerId;
    const [first] = this.#nodes.keys();
    if (first === undefined) throw new RetriableError('the cluster has no broker at the moment. Try again.');
    return first;
  }

  /**
   * The node that coordinates this group or transactional id, looked up once. Waits, within the deadline, while the broker has none yet: the
   * first look-up of a new cluster creates the topic behind it.
   */
  async coordinator(type: CoordinatorType, key: string, timeoutMs = this.#config.requestTimeoutMs): Promise<number> {
    const known = this.#coordinators.get(`${type}/${key}`);
    if (known !== undefined && this.#nodes.has(known)) return known;
    const deadline = performance.now() + timeoutMs;
    if (this.#nodes.size === 0) await this.connect(timeoutMs);
    for (;;) {
      const remaining = deadline - performance.now();
      const answer = await this.sendToAny(findCoordinatorExchange(type, key), Math.max(remaining, 1));
      if (answer.errorCode === ErrorCode.NONE) {
        this.#node(answer.nodeId, answer);
        this.#coordinators.set(`${type}/${key}`, answer.nodeId);
        return answer.nodeId;
      }
      const error = coordinatorError(answer.errorCode, answer.errorMessage, type, key);
      if (!(error instanceof RetriableError) || performance.now() + COORDINATOR_BACK_OFF_MS > deadline) throw error;
      await new Promise((resolve) => setTimeout(resolve, COORDINATOR_BACK_OFF_MS));
      if (this.#closed) throw new BrokerUnreachableError('this client is closed');
    }
  }

  /** Look the coordinator up anew at the next call: after NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE or a lost connection. */
  forgetCoordinator(type: CoordinatorType, key: string): void {
    this.#coordinators.delete(`${type}/${key}`);
  }

  #link(address: BrokerAddress): BrokerLink {
    return new BrokerLink(this.#cluster, this.#config, address);
  }

  #candidates(): BrokerLink[] {
    const nodes = [...this.#nodes.values()];
    const seeds = this.#seeds.map((_, i) => this.#seeds[(this.#nextSeed + i) % this.#seeds.length]!);
    this.#nextSeed++;
    return [...nodes.filter((link) => link.connected), ...nodes.filter((link) => !link.connected), ...seeds];
  }

  #learn(metadata: ClusterMetadata, knownTopicsOnly: boolean): void {
    if (this.#closed) return;
    this.#controllerId = metadata.controllerId;
    for (const broker of metadata.brokers) this.#node(broker.nodeId, broker);
    const present = new Set(metadata.brokers.map((broker) => broker.nodeId));
    // A broker that has just gone is still waited for by its requests, so its link goes with an error for each of them.
    for (const [nodeId, link] of this.#nodes) {
      if (present.has(nodeId) || present.size === 0) continue;
      link.close();
      this.#nodes.delete(nodeId);
    }
    for (const topic of metadata.topics.values()) {
      if (!knownTopicsOnly || this.#topics.has(topic.topic)) this.#topics.set(topic.topic, topic);
    }
    this.#seeds.forEach((seed, i) => {
      if (!seed.connected || this.#nodes.size === 0 || [...this.#nodes.values()].includes(seed)) return;
      seed.close();
      this.#seeds[i] = this.#link(seed.address);
    });
  }

  #node(nodeId: number, { host, port }: BrokerAddress): void {
    const known = this.#nodes.get(nodeId);
    if (known !== undefined && known.address.host === host && known.address.port === port) return;
    known?.close();
    // The connection to a seed goes on as that of its node.
    const seed = this.#seeds.findIndex((link) => link.connected && link.address.host === host && link.address.port === port);
    const adopted = this.#seeds[seed];
    if (adopted !== undefined) this.#seeds[seed] = this.#link(adopted.address);
    this.#nodes.set(nodeId, adopted ?? this.#link({ host, port }));
  }

  #unknownNode(nodeId: number): TidemarkError {
    return new BrokerUnreachableError(`broker ${nodeId} is not known in this cluster. Refresh the metadata and try again.`);
  }
}

function coordinatorError(code: number, detail: string | null, type: CoordinatorType, key: string): TidemarkError {
  const place = type === 'group' ? { group: key } : { transactionalId: key };
  // Brokers answer so until the topic behind the coordinator exists and has a leader.
  if (code === ErrorCode.INVALID_REPLICATION_FACTOR) {
    return new RetriableError(
      `no coordinator for ${type} '${key}' yet: ${errorName(code)}. The cluster has too few brokers for its internal topics.`,
    );
  }
  return toKafkaError(code, { api: 'FindCoordinator', ...place, detail });
}
