/**
 * A scripted Kafka in memory, for tests of the engine: one cluster, one member of the group, whose rebalances the test writes itself. It keeps the
 * contract of the port strictly (a producer that is used out of its states throws), and fails where it is told to.
 */
import type {
  CommittedOffset,
  ConsumerEvent,
  Admin,
  FetchedBatch,
  GroupConsumer,
  GroupMetadata,
  IdempotentProducer,
  KafkaClient,
  OffsetToCommit,
  Producer,
  TransactionalProducer,
} from '../../src/kafka/port.ts';
import type { Clock } from '../../src/model/clock.ts';
import { FatalError, StaleGenerationError } from '../../src/model/errors.ts';
import { type Headers, NO_HEADERS } from '../../src/model/headers.ts';
import type { ConsumedRecord, Payload } from '../../src/model/record.ts';
import { type TopicPartition, topicPartitionKey } from '../../src/model/topic-partition.ts';

export interface FakeInput {
  readonly key?: string | null;
  readonly value?: string | null;
  readonly timestamp?: number;
  readonly headers?: Headers;
}

export interface FakeOutput {
  readonly topic: string;
  readonly partition: number;
  readonly key: string | null;
  readonly value: string | null;
  readonly timestamp: number;
  readonly headers: Headers;
}

/** Calls that can be made to fail, and that appear in the journal. */
export type FakeCall =
  | 'poll'
  | 'partitionCounts'
  | 'init'
  | 'committed'
  | 'commit'
  | 'loadTopics'
  | 'append'
  | 'ready'
  | 'flush'
  | 'sendOffsets'
  | 'endTxn'
  | 'abort';

interface FakeLog {
  /** Undefined stands for a control record. */
  readonly entries: (ConsumedRecord | undefined)[];
  start: bigint;
}

export class FakeCluster {
  readonly clock: Clock;
  /** What was called, in order; polls and appends are left out. */
  readonly journal: string[] = [];
  /** What readers with read_committed see. */
  readonly outputs: FakeOutput[] = [];
  readonly groupOffsets = new Map<string, { offset: bigint; metadata: string }>();
  readonly #logs = new Map<string, FakeLog>();
  readonly #counts = new Map<string, number>();
  readonly #failures = new Map<FakeCall, { error: Error; afterEffect: boolean }[]>();

  constructor(clock: Clock) {
    this.clock = clock;
  }

  createTopic(topic: string, partitions: number): void {
    this.#counts.set(topic, partitions);
    for (let partition = 0; partition < partitions; partition++)
      this.#logs.set(topicPartitionKey(topic, partition), { entries: [], start: 0n });
  }

  partitionCount(topic: string): number | undefined {
    return this.#counts.get(topic);
  }

  counts(topics: readonly string[]): ReadonlyMap<string, number> {
    return new Map([...this.#counts].filter(([topic]) => topics.includes(topic)));
  }

  log(topic: string, partition: number): FakeLog {
    const log = this.#logs.get(topicPartitionKey(topic, partition));
    if (log === undefined) throw new Error(`no ${topic}-${partition}`);
    return log;
  }

  end(topic: string, partition: number): bigint {
    return BigInt(this.log(topic, partition).entries.length);
  }

  feed(topic: string, partition: number, inputs: readonly FakeInput[]): void {
    const { entries } = this.log(topic, partition);
    for (const { key = null, value = null, timestamp, headers = NO_HEADERS } of inputs) {
      const offset = BigInt(entries.length);
      entries.push({
        topic,
        partition,
        offset,
        timestamp: timestamp ?? Number(offset),
        headers,
        key: key === null ? null : Buffer.from(key),
        value: value === null ? null : Buffer.from(value),
        keyText: () => key?.toString() ?? null,
        valueText: () => value?.toString() ?? null,
      });
    }
  }

  /** A transaction marker: takes an offset, and no record comes of it. */
  feedMarker(topic: string, partition: number): void {
    this.log(topic, partition).entries.push(undefined);
  }

  /** The next call of that kind throws, before or after it has taken effect. May be told several times. */
  fail(call: FakeCall, error: Error, { afterEffect = false, times = 1 } = {}): void {
    const list = this.#failures.get(call) ?? [];
    for (let i = 0; i < times; i++) list.push({ error, afterEffect });
    this.#failures.set(call, list);
  }

  perform<T>(call: FakeCall, effect: () => T, note?: string): T {
    const failure = this.#failures.get(call)?.shift();
    if (call !== 'poll' && call !== 'append' && call !== 'ready') {
      this.journal.push(`${call}${note === undefined ? '' : ` ${note}`}${failure === undefined ? '' : ' !'}`);
    }
    if (failure !== undefined && !failure.afterEffect) throw failure.error;
    const result = effect();
    if (failure !== undefined) throw failure.error;
    return result;
  }

  storeOffsets(offsets: readonly OffsetToCommit[]): void {
    for (const { topic, partition, offset, metadata = '' } of offsets) {
      this.groupOffsets.set(topicPartitionKey(topic, partition), { offset, metadata });
    }
  }

  values(topic: string): (string | null)[] {
    return this.outputs.filter((output) => output.topic === topic).map((output) => output.value);
  }
}

export class FakeConsumer implements GroupConsumer {
  readonly #cluster: FakeCluster;
  readonly #script: ConsumerEvent[] = [];
  readonly #positions = new Map<string, { tp: TopicPartition; offset: bigint; paused: boolean }>();
  #generation = 0;
  #member = false;
  /** Records per fetched batch. */
  batchRecords = 10;
  closed = false;
  readonly paused: string[] = [];

  constructor(cluster: FakeCluster) {
    this.#cluster = cluster;
  }

  assign(partitions: readonly TopicPartition[], retained: readonly TopicPartition[] = []): void {
    this.#script.push({ type: 'assigned', generation: ++this.#generation, partitions, retained });
    this.#member = true;
    const kept = new Set(retained.map((tp) => topicPartitionKey(tp.topic, tp.partition)));
    for (const key of this.#positions.keys()) if (!kept.has(key)) this.#positions.delete(key);
  }

  revoke(partitions: readonly TopicPartition[]): void {
    this.#script.push({ type: 'revoked', partitions });
  }

  lose(partitions: readonly TopicPartition[], reason = 'session expired'): void {
    this.#script.push({ type: 'lost', partitions, reason });
    this.#member = false;
    this.#positions.clear();
  }

  /** The group goes on without this member, who does not know yet. */
  expel(): void {
    this.#member = false;
  }

  outOfRange(tp: TopicPartition, position: bigint, logStart: bigint, logEnd: bigint): void {
    this.#script.push({ type: 'out-of-range', ...tp, position, logStart, logEnd });
  }

  async poll(maxWaitMs: number): Promise<readonly ConsumerEvent[]> {
    const events = this.#cluster.perform('poll', (): ConsumerEvent[] => {
      const scripted = this.#script.shift();
      if (scripted !== undefined) return [scripted];
      const batches = [...this.#positions.values()].flatMap((position) => this.#fetch(position));
      return batches.map((batch) => ({ type: 'batch', batch }));
    });
    if (events.length === 0) await this.#cluster.clock.sleep(maxWaitMs);
    return events;
  }

  startFrom({ topic, partition }: TopicPartition, offset: bigint): void {
    this.#cluster.journal.push(`startFrom ${topic}-${partition}@${offset}`);
    this.#positions.set(topicPartitionKey(topic, partition), { tp: { topic, partition }, offset, paused: false });
  }

  pause(partitions: readonly TopicPartition[]): void {
    for (const { topic, partition } of partitions) this.#setPaused(topic, partition, true);
  }

  resume(partitions: readonly TopicPartition[]): void {
    for (const { topic, partition } of partitions) this.#setPaused(topic, partition, false);
  }

  async committed(partitions: readonly TopicPartition[]): Promise<readonly CommittedOffset[]> {
    return this.#cluster.perform('committed', () =>
      partitions.flatMap(({ topic, partition }) => {
        const stored = this.#cluster.groupOffsets.get(topicPartitionKey(topic, partition));
        return stored === undefined ? [] : [{ topic, partition, ...stored }];
      }),
    );
  }

  async commit(offsets: readonly OffsetToCommit[]): Promise<void> {
    this.#cluster.perform(
      'commit',
      () => {
        if (!this.#member) throw new StaleGenerationError('not a member');
        this.#cluster.storeOffsets(offsets);
      },
      text(offsets),
    );
  }

  groupMetadata(): GroupMetadata {
    return { groupId: 'fake', generation: this.#generation, memberId: 'm', groupInstanceId: null };
  }

  /** What the group's coordinator would check. */
  isMember(group: GroupMetadata): boolean {
    return this.#member && group.generation === this.#generation;
  }

  async logOffsets(partitions: readonly TopicPartition[]): Promise<ReadonlyMap<string, { start: bigint; end: bigint }>> {
    return new Map(
      partitions.map(({ topic, partition }) => [
        topicPartitionKey(topic, partition),
        { start: this.#cluster.log(topic, partition).start, end: this.#cluster.end(topic, partition) },
      ]),
    );
  }

  async close(): Promise<void> {
    this.closed = true;
  }

  #setPaused(topic: string, partition: number, paused: boolean): void {
    this.paused.push(`${paused ? 'pause' : 'resume'} ${topic}-${partition}`);
    const position = this.#positions.get(topicPartitionKey(topic, partition));
    if (position !== undefined) position.paused = paused;
  }

  #fetch(position: { tp: TopicPartition; offset: bigint; paused: boolean }): FetchedBatch[] {
    const { topic, partition } = position.tp;
    const { entries } = this.#cluster.log(topic, partition);
    const from = Number(position.offset);
    if (position.paused || from >= entries.length) return [];
    const slice = entries.slice(from, from + this.batchRecords);
    position.offset += BigInt(slice.length);
    const records = slice.filter((entry) => entry !== undefined);
    let next = 0;
    const end = BigInt(entries.length);
    const bytes = records.reduce((sum, { key, value }) => sum + (key?.length ?? 0) + (value?.length ?? 0), 0);
    return [
      {
        topic,
        partition,
        records: { next: () => records[next++] },
        nextOffset: position.offset,
        highWatermark: end,
        lastStableOffset: end,
        bytes,
      },
    ];
  }
}

/** What both kinds of producers share. */
abstract class FakeProducer implements Producer {
  protected readonly cluster: FakeCluster;
  protected readonly buffer: FakeOutput[] = [];
  /** Set by a failure that only the given calls mend. */
  protected broken = false;
  readonly #loaded = new Set<string>();
  maxBytes = 1_000_000;
  bufferedBytes = 0;
  closed = false;

  constructor(cluster: FakeCluster) {
    this.cluster = cluster;
  }

  protected abstract requireOpen(call: FakeCall): void;
  protected abstract readonly mendsBy: string;

  async loadTopics(topics: readonly string[]): Promise<void> {
    this.cluster.perform(
      'loadTopics',
      () => {
        for (const topic of topics) {
          if (this.cluster.partitionCount(topic) === undefined) throw new FatalError(`topic '${topic}' does not exist`);
          this.#loaded.add(topic);
        }
      },
      topics.join(','),
    );
  }

  partitionCount(topic: string): number | undefined {
    return this.#loaded.has(topic) ? this.cluster.partitionCount(topic) : undefined;
  }

  maxRecordBytes(): number {
    return this.maxBytes;
  }

  recordBytes(key: Payload, value: Payload, headers: Headers): number {
    const headerBytes = headers.reduce((sum, { key: name, value: content }) => sum + name.length + (content?.length ?? 0), 0);
    return size(key) + size(value) + headerBytes;
  }

  append(topic: string, partition: number, key: Payload, value: Payload, timestamp: number, headers: Headers): void {
    this.guarded('append', () => {
      if (!this.#loaded.has(topic)) throw new Error(`append to '${topic}', which is not loaded`);
      this.buffer.push({ topic, partition, key: decoded(key), value: decoded(value), timestamp, headers });
      this.bufferedBytes += size(key) + size(value);
    });
  }

  async ready(): Promise<void> {
    this.guarded('ready', () => undefined);
  }

  async close(): Promise<void> {
    this.closed = true;
  }

  protected guarded<T>(call: FakeCall, effect: () => T, note?: string): T {
    this.requireOpen(call);
    if (this.broken) throw new Error(`${call} on a producer that only ${this.mendsBy} can mend`);
    try {
      return this.cluster.perform(call, effect, note);
    } catch (error) {
      this.broken = true;
      throw error;
    }
  }

  protected drop(): void {
    this.buffer.length = 0;
    this.bufferedBytes = 0;
  }

  abstract flush(): Promise<void>;
}

export class FakeTransactionalProducer extends FakeProducer implements TransactionalProducer {
  readonly #consumer: FakeConsumer;
  protected readonly mendsBy = 'abort or init';
  #state: 'fresh' | 'ready' | 'open' | 'unknown' = 'fresh';
  #offsets: readonly OffsetToCommit[] | undefined;

  constructor(cluster: FakeCluster, consumer: FakeConsumer) {
    super(cluster);
    this.#consumer = consumer;
  }

  get inTransaction(): boolean {
    return this.#state === 'open';
  }

  async init(): Promise<void> {
    this.cluster.perform('init', () => {
      this.drop();
      this.broken = false;
      this.#offsets = undefined;
      this.#state = 'ready';
    });
  }

  begin(): void {
    if (this.#state !== 'ready') throw new Error(`begin in state ${this.#state}`);
    this.#state = 'open';
  }

  async flush(): Promise<void> {
    this.guarded('flush', () => {
      this.bufferedBytes = 0;
    });
  }

  async sendOffsets(offsets: readonly OffsetToCommit[], group: GroupMetadata): Promise<void> {
    this.guarded(
      'sendOffsets',
      () => {
        if (this.#offsets !== undefined) throw new Error('sendOffsets twice');
        if (!this.#consumer.isMember(group)) throw new StaleGenerationError('the generation is over');
        this.#offsets = offsets;
      },
      text(offsets),
    );
  }

  async commit(): Promise<void> {
    this.requireOpen('endTxn');
    if (this.broken) throw new Error('commit of a transaction that has failed');
    this.#state = 'unknown';
    this.cluster.perform('endTxn', () => {
      if (this.buffer.length > 0 || this.#offsets !== undefined) {
        this.cluster.outputs.push(...this.buffer);
        this.cluster.storeOffsets(this.#offsets ?? []);
      } else {
        throw new Error('an empty transaction');
      }
      this.drop();
      this.#offsets = undefined;
    });
    this.#state = 'ready';
  }

  async abort(): Promise<void> {
    this.requireOpen('abort');
    this.#state = 'unknown';
    this.cluster.perform('abort', () => {
      this.drop();
      this.broken = false;
      this.#offsets = undefined;
    });
    this.#state = 'ready';
  }

  protected requireOpen(call: FakeCall): void {
    if (call === 'ready' ? this.#state === 'fresh' : this.#state !== 'open') throw new Error(`${call} in state ${this.#state}`);
  }
}

export class FakeIdempotentProducer extends FakeProducer implements IdempotentProducer {
  protected readonly mendsBy = 'init';
  #ready = false;

  async init(): Promise<void> {
    this.cluster.perform('init', () => {
      this.drop();
      this.broken = false;
      this.#ready = true;
    });
  }

  async flush(): Promise<void> {
    this.guarded('flush', () => {
      this.cluster.outputs.push(...this.buffer);
      this.drop();
    });
  }

  protected requireOpen(call: FakeCall): void {
    if (!this.#ready) throw new Error(`${call} before init`);
  }
}

/** A client whose group has one member, to be assigned by the test. */
export class FakeClient implements KafkaClient {
  readonly cluster: FakeCluster;
  readonly consumer: FakeConsumer;
  /** The producers that were made, in order. */
  readonly producers: FakeProducer[] = [];

  constructor(cluster: FakeCluster) {
    this.cluster = cluster;
    this.consumer = new FakeConsumer(cluster);
  }

  groupConsumer(): GroupConsumer {
    return this.consumer;
  }

  transactionalProducer(): TransactionalProducer {
    const producer = new FakeTransactionalProducer(this.cluster, this.consumer);
    this.producers.push(producer);
    return producer;
  }

  idempotentProducer(): IdempotentProducer {
    const producer = new FakeIdempotentProducer(this.cluster);
    this.producers.push(producer);
    return producer;
  }

  logReader(): never {
    throw new Error('not faked');
  }

  admin(): Admin {
    const { cluster } = this;
    const admin: Pick<Admin, 'partitionCounts' | 'createTopics' | 'close'> = {
      partitionCounts: async (topics = []) => cluster.perform('partitionCounts', () => cluster.counts(topics)),
      createTopics: async (specs) => {
        for (const { topic, partitions } of specs) cluster.createTopic(topic, partitions);
      },
      close: async () => undefined,
    };
    return admin as Admin;
  }
}

function text(offsets: readonly OffsetToCommit[]): string {
  return offsets.map(({ topic, partition, offset }) => `${topic}-${partition}@${offset}`).join(',');
}

function size(payload: Payload): number {
  return payload === null ? 0 : Buffer.byteLength(payload);
}

function decoded(payload: Payload): string | null {
  return payload === null ? null : typeof payload === 'string' ? payload : Buffer.from(payload).toString('utf8');
}
