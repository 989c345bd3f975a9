import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { FatalError, RetriableError, StaleGenerationError, type TidemarkError } from '../../model/errors.ts';
import { topicPartitionKey, type TopicPartition } from '../../model/topic-partition.ts';
import type {
  Assignor,
  CommittedOffset,
  ConsumerEvent,
  GroupConsumer,
  GroupConsumerOptions,
  GroupMetadata,
  Isolation,
  OffsetToCommit,
} from '../port.ts';
import type { ConnectionConfig } from './config.ts';
import { ClusterConnection } from './connection.ts';
import { assignmentUserData, decodeAssignment, encodeSubscription } from './consumer-protocol.ts';
import { fetchSettings } from './fetch-settings.ts';
import { Fetcher } from './fetcher.ts';
import { assignGroup, groupMembers } from './group-assignment.ts';
import { groupSettings, type GroupSettings } from './group-settings.ts';
import { Membership, type Joined } from './membership.ts';
import { lookUpOffsets } from './offset-lookup.ts';
import { retry } from './retry.ts';
import { SubscribedTopics } from './subscribed-topics.ts';
import { WakeUp } from './wake-up.ts';
import { ErrorCode, toKafkaError } from './wire/error-code.ts';
import type { JoinedMember } from './wire/join-group.ts';
import { EARLIEST, LATEST } from './wire/list-offsets.ts';
import type { Member } from './wire/member.ts';
import { offsetCommitExchange } from './wire/offset-commit.ts';
import { offsetFetchExchange, UnstableOffsetError } from './wire/offset-fetch.ts';

/**
 * - `outside`: no member; the next poll begins to join.
 * - `joining`: in the background, while polls give nothing.
 * - `member`: polls give batches.
 * - `revoked`: still a member of the generation that ends; the next poll begins to join again.
 */
type Phase = 'outside' | 'joining' | 'member' | 'revoked';

/** Throws ConfigurationError that names the option. */
export class KafkaGroupConsumer implements GroupConsumer {
  readonly #groupId: string;
  readonly #assignor: Assignor;
  readonly #settings: GroupSettings;
  readonly #isolation: Isolation;
  readonly #log: ConnectionConfig['log'];
  readonly #control: ClusterConnection;
  readonly #fetcher: Fetcher;
  readonly #membership: Membership;
  readonly #topics: SubscribedTopics;
  readonly #news = new WakeUp();
  readonly #closing = new AbortController();
  #phase: Phase = 'outside';
  /** What the caller of `poll` was told last, by key. */
  #owned = new Map<string, TopicPartition>();
  /** The generation of `#owned`: this member has been in the group ever since. Undefined after a loss. */
  #generation: number | undefined;
  /** Under which the caller commits. */
  #member: Member | undefined;
  #joined: Joined | undefined;
  #subscribed: ReadonlyMap<string, number> = new Map();
  #leads = false;
  #fatal: TidemarkError | undefined;
  #polling = false;
  #polledAt = performance.now();
  #watch: NodeJS.Timeout | undefined;
  #looking = false;

  constructor(config: ConnectionConfig, options: GroupConsumerOptions) {
    this.#settings = groupSettings(options, config.requestTimeoutMs);
    const { requestTimeoutMs, sessionTimeoutMs, heartbeatIntervalMs, maxPollIntervalMs } = this.#settings;
    const settings = fetchSettings(options.fetch);
    const onNews = (): void => this.#news.wake();
    this.#groupId = options.groupId;
    this.#assignor = options.assignor;
    this.#isolation = settings.isolation;
    this.#log = config.log;
    this.#control = new ClusterConnection(config);
    this.#fetcher = new Fetcher(config, { control: this.#control, settings, requestTimeoutMs, onNews });
    this.#topics = new SubscribedTopics(this.#control, options.subscription, requestTimeoutMs);
    this.#membership = new Membership(config, this.#control, {
      groupId: options.groupId,
      groupInstanceId: options.groupInstanceId ?? null,
      protocol: options.assignor.name,
      sessionTimeoutMs,
      heartbeatIntervalMs,
      rebalanceTimeoutMs: maxPollIntervalMs,
      requestTimeoutMs,
      subscription: () => this.#subscription(),
      assign: (members) => this.#assign(members),
      isStuck: () => !this.#polling && performance.now() - this.#polledAt > maxPollIntervalMs,
      onNews,
    });
  }

  async poll(maxWaitMs: number): Promise<readonly ConsumerEvent[]> {
    if (this.#polling) throw new FatalError(`group '${this.#groupId}': poll was called while another poll is running. Await each one.`);
    if (this.#closing.signal.aborted) throw this.#closedError();
    const deadline = performance.now() + maxWaitMs;
    this.#polling = true;
    try {
      // Whoever polls without a pause must not keep the sockets and timers from their turn.
      await eventLoopTurn();
      for (;;) {
        if (this.#closing.signal.aborted) return [];
        const events = this.#next();
        if (events.length > 0) return events;
        const remainingMs = deadline - performance.now();
        if (remainingMs <= 0) return [];
        await this.#news.wait(remainingMs);
      }
    } finally {
      this.#polling = false;
      this.#polledAt = performance.now();
    }
  }

  startFrom(partition: TopicPartition, offset: bigint): void {
    const key = topicPartitionKey(partition.topic, partition.partition);
    if (!this.#owned.has(key)) throw new StaleGenerationError(`group '${this.#groupId}': ${key} is not assigned to this member.`);
    this.#fetcher.start(partition, offset);
  }

  pause(partitions: readonly TopicPartition[]): void {
    for (const partition of partitions) this.#fetcher.pause(partition);
  }

  resume(partitions: readonly TopicPartition[]): void {
    for (const partition of partitions) this.#fetcher.resume(partition);
  }

  async committed(partitions: readonly TopicPartition[]): Promise<readonly CommittedOffset[]> {
    if (partitions.length === 0) return [];
    const answer = await this.#askCoordinator(async (coordinator, timeoutMs) => {
      try {
        return await this.#control.send(coordinator, offsetFetchExchange(this.#groupId, partitions, true), { timeoutMs });
      } catch (error) {
        // Not tried again here: how long to wait for a transaction is the caller's to decide.
        if (error instanceof UnstableOffsetError) return error;
        throw error;
      }
    });
    if (answer instanceof UnstableOffsetError) throw answer;
    return answer;
  }

  async commit(offsets: readonly OffsetToCommit[]): Promise<void> {
    if (offsets.length === 0) return;
    const member = this.#currentMember();
    await this.#askCoordinator(async (coordinator, timeoutMs) => {
      const answers = await this.#control.send(coordinator, offsetCommitExchange(member, offsets), { timeoutMs });
      for (const { topic, partition, errorCode } of answers) {
        if (errorCode !== ErrorCode.NONE) throw this.#commitError(errorCode, { topic, partition });
      }
    });
  }

  groupMetadata(): GroupMetadata {
    return this.#currentMember();
  }

  async logOffsets(partitions: readonly TopicPartition[]): Promise<ReadonlyMap<string, { readonly start: bigint; readonly end: bigint }>> {
    const ask = (timestamp: bigint, isolation: Isolation) =>
      lookUpOffsets(
        this.#control,
        partitions.map(({ topic, partition }) => ({ topic, partition, timestamp })),
        isolation,
        this.#settings.requestTimeoutMs,
      );
    // One after the other, so that the start never lies behind the end.
    const starts = await ask(EARLIEST, 'read-uncommitted');
    const ends = await ask(LATEST, this.#isolation);
    return new Map([...starts].map(([key, { offset }]) => [key, { start: offset, end: ends.get(key)!.offset }]));
  }

  async close(timeoutMs = 5_000): Promise<void> {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort();
    clearTimeout(this.#watch);
    this.#fetcher.close();
    this.#news.wake();
    this.#membership.close();
    await this.#membership.leave(timeoutMs);
    this.#control.close();
  }

  /** One step of the member's life, and what it gives. */
  #next(): readonly ConsumerEvent[] {
    const { lost: reason, fatal: failed } = this.#membership;
    if (reason !== undefined) {
      this.#membership.acknowledgeLoss();
      const events = this.#lose(reason);
      if (events.length > 0) return events;
    }
    const failure = failed ?? this.#fatal;
    if (failure !== undefined) {
      // Outside of the group for good: that comes first, so that nothing is committed any more.
      const events = this.#phase === 'member' ? [] : this.#lose(failure.message);
      if (events.length > 0) return events;
      throw failure;
    }
    switch (this.#phase) {
      case 'outside':
      case 'revoked':
        this.#join();
        return [];
      case 'joining':
        return this.#joined === undefined ? [] : [this.#enter(this.#joined)];
      case 'member':
        return this.#membership.rebalancing ? this.#revoke() : this.#batches();
    }
  }

  #join(): void {
    this.#phase = 'joining';
    this.#member = undefined;
    clearTimeout(this.#watch);
    // Never rejects.
    void this.#joinGroup();
  }

  async #joinGroup(): Promise<void> {
    try {
      this.#subscribed = await this.#topics.find(this.#closing.signal);
      this.#joined = await this.#membership.join();
    } catch (error) {
      if (!this.#closing.signal.aborted) this.#fatal = fatal(`group '${this.#groupId}' cannot be joined`, error);
    } finally {
      this.#news.wake();
    }
  }

  #enter({ member, leads, assignment }: Joined): ConsumerEvent {
    const assigned = decodeAssignment(assignment);
    this.#assignor.onNote?.(assignmentUserData(assignment));
    // Nobody else can have owned a partition between two generations that follow each other.
    const unbroken =
      this.#generation !== undefined && (member.generation === this.#generation || member.generation === this.#generation + 1);
    const before = this.#owned;
    this.#owned = new Map(assigned.map((each) => [topicPartitionKey(each.topic, each.partition), each]));
    const retained = unbroken ? [...this.#owned].filter(([key]) => before.has(key)).map(([, each]) => each) : [];
    const kept = new Set(retained.map((each) => topicPartitionKey(each.topic, each.partition)));
    for (const [key, each] of before) if (!kept.has(key)) this.#fetcher.stop(each);
    this.#joined = undefined;
    this.#phase = 'member';
    this.#generation = member.generation;
    this.#member = member;
    this.#leads = leads;
    this.#planWatch(this.#settings.metadataMaxAgeMs);
    return { type: 'assigned', generation: member.generation, partitions: assigned, retained };
  }

  #revoke(): readonly ConsumerEvent[] {
    this.#phase = 'revoked';
    if (this.#owned.size > 0) return [{ type: 'revoked', partitions: [...this.#owned.values()] }];
    this.#join();
    return [];
  }

  #lose(reason: string): readonly ConsumerEvent[] {
    const partitions = [...this.#owned.values()];
    for (const partition of partitions) this.#fetcher.stop(partition);
    this.#owned.clear();
    this.#generation = undefined;
    this.#member = undefined;
    clearTimeout(this.#watch);
    // An attempt to join goes on by itself, as somebody new.
    if (this.#phase === 'joining' && (this.#joined === undefined || this.#membership.active)) return lost(partitions, reason);
    this.#joined = undefined;
    this.#phase = 'outside';
    return lost(partitions, reason);
  }

  #batches(): readonly ConsumerEvent[] {
    const events: ConsumerEvent[] = [];
    for (const item of this.#fetcher.take()) {
      if (item.type === 'missing') this.#planWatch(0);
      else events.push(item);
    }
    return events;
  }

  #subscription(): Buffer {
    const unbroken = this.#membership.lost === undefined && this.#generation !== undefined;
    return encodeSubscription({
      topics: [...this.#subscribed.keys()].toSorted(),
      userData: this.#assignor.userData(),
      owned: unbroken ? [...this.#owned.values()] : [],
      generation: unbroken ? this.#generation! : -1,
    });
  }

  async #assign(joined: readonly JoinedMember[]): Promise<ReadonlyMap<string, Buffer>> {
    const members = groupMembers(joined);
    const topics = [...new Set(members.flatMap((member) => member.topics))];
    const found = await this.#control.metadata(topics, this.#settings.requestTimeoutMs);
    const counts = new Map<string, number>();
    for (const { topic, errorCode, partitions } of found.topics.values()) {
      if (errorCode !== ErrorCode.UNKNOWN_TOPIC_OR_PARTITION && partitions.length > 0) counts.set(topic, partitions.length);
    }
    // What the watch compares with from now on.
    this.#subscribed = new Map([...this.#subscribed.keys()].map((topic) => [topic, counts.get(topic) ?? 0]));
    return assignGroup(this.#assignor, members, counts);
  }

  #planWatch(delayMs: number): void {
    clearTimeout(this.#watch);
    this.#watch = setTimeout(() => this.#look(), delayMs);
  }

  /** Topics may come, go and grow. */
  #look(): void {
    if (this.#looking || this.#phase !== 'member') return;
    // Never rejects.
    void this.#lookForChanges();
  }

  async #lookForChanges(): Promise<void> {
    this.#looking = true;
    try {
      const found = await this.#topics.find(this.#closing.signal);
      if (this.#phase === 'member' && this.#isOtherThan(found)) {
        this.#log?.('info', 'the topics of a subscription have changed', { group: this.#groupId, topics: Object.fromEntries(found) });
        this.#membership.requestRebalance();
      }
    } catch (error) {
      if (this.#closing.signal.aborted) return;
      this.#fatal = fatal(`group '${this.#groupId}' cannot look up its topics`, error);
      this.#news.wake();
    } finally {
      this.#looking = false;
      if (!this.#closing.signal.aborted && this.#phase === 'member') this.#planWatch(this.#settings.metadataMaxAgeMs);
    }
  }

  /**
   * Every member looks after its own topics, the leader after the numbers of partitions too. So does a static member, since one that led
   * the group before it was restarted leads without being told (KIP-814).
   */
  #isOtherThan(found: ReadonlyMap<string, number>): boolean {
    if (found.size !== this.#subscribed.size) return true;
    const counts = this.#leads || this.#member?.groupInstanceId !== null;
    for (const [topic, count] of found) {
      const known = this.#subscribed.get(topic);
      if (known === undefined || (counts && known !== count)) return true;
    }
    return false;
  }

  #currentMember(): Member {
    // Asking notices a session that has ended while this process was stopped.
    if (this.#member !== undefined && this.#membership.lost === undefined) return this.#member;
    throw new StaleGenerationError(`group '${this.#groupId}': this consumer is not a member now. Poll on; it joins again.`);
  }

  #commitError(code: number, place: TopicPartition): TidemarkError {
    const error = toKafkaError(code, { api: 'OffsetCommit', group: this.#groupId, ...place });
    switch (code) {
      case ErrorCode.UNKNOWN_MEMBER_ID:
      case ErrorCode.ILLEGAL_GENERATION:
        this.#membership.lose(error.message);
        return error;
      // What it means for this member is for its next heartbeat to find out.
      case ErrorCode.FENCED_INSTANCE_ID:
        return new StaleGenerationError(error.message);
      default:
        return error;
    }
  }

  /** Repeated within the deadline while the coordinator moves, loads or is away. */
  async #askCoordinator<T>(ask: (coordinator: number, timeoutMs: number) => Promise<T>): Promise<T> {
    return await retry(this.#settings.requestTimeoutMs, async (remainingMs) => {
      if (this.#closing.signal.aborted) throw this.#closedError();
      try {
        const coordinator = await this.#control.coordinator('group', this.#groupId, remainingMs);
        return await ask(coordinator, remainingMs);
      } catch (error) {
        if (error instanceof RetriableError) this.#control.forgetCoordinator('group', this.#groupId);
        throw error;
      }
    });
  }

  #closedError(): FatalError {
    return new FatalError(`the consumer of group '${this.#groupId}' is closed.`);
  }
}

function lost(partitions: readonly TopicPartition[], reason: string): readonly ConsumerEvent[] {
  return partitions.length === 0 ? [] : [{ type: 'lost', partitions, reason }];
}

function fatal(what: string, error: unknown): FatalError {
  return error instanceof FatalError ? error : new FatalError(`${what}: ${String(error)}`, { cause: error });
}
