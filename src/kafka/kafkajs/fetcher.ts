import { FatalError, RetriableError, type TidemarkError } from '../../model/errors.ts';
import { topicPartitionKey, type TopicPartition } from '../../model/topic-partition.ts';
import type { FetchedBatch } from '../port.ts';
import { BackOff } from './back-off.ts';
import type { ConnectionConfig } from './config.ts';
import { ClusterConnection } from './connection.ts';
import type { FetchSettings } from './fetch-settings.ts';
import { scanFetchedBytes } from './fetched-bytes.ts';
import { lookUpOffsets } from './offset-lookup.ts';
import { PartitionFeed, type FeedItem } from './partition-feed.ts';
import { ReadCommittedFilter } from './read-committed-filter.ts';
import { ErrorCode, isRetriable, toKafkaError } from './wire/error-code.ts';
import type { Exchange } from './wire/exchange.ts';
import { fetchExchange, type FetchAnswer, type FetchedPartition } from './wire/fetch.ts';
import { EARLIEST, LATEST } from './wire/list-offsets.ts';
import { RecordBatchDecoder } from './wire/record-batch-decoder.ts';

/** The wait of a fetch that others may have to wait for. */
const SHORT_WAIT_MS = 50;
/** A batch that arrives damaged this often in a row is damaged in the log. */
const DAMAGES_UNTIL_FATAL = 4;
/** How long a topic may be unknown to a broker before it counts as missing. */
const MISSING_GRACE_MS = 5_000;
/** A smaller share of an answer than this is copied, so that what waits long does not keep the whole answer in memory. */
const SMALL_SHARE = 1 / 8;

/** One of two connections to each leader, with the fetches that are on their way on it. */
interface Lane {
  readonly connection: ClusterConnection;
  /** The brokers may have other addresses now. */
  stale: boolean;
  /** By node: how long the leader may hold the fetch. */
  readonly waits: Map<number, number>;
}

export interface FetcherOptions {
  /** For metadata and offsets, which must not wait behind a fetch. Not closed by the fetcher. */
  readonly control: ClusterConnection;
  readonly settings: FetchSettings;
  readonly requestTimeoutMs: number;
  /** Called when there may be something new to take. */
  readonly onNews: () => void;
}

/**
 * Reads partitions from their leaders ahead of who takes them, on connections of its own, so that a fetch which waits holds up nothing else.
 *
 * Each leader has one long poll at a time, for all its partitions that want data. A partition that begins to want while the poll is held (it was
 * just started or resumed, or its buffer was taken) goes on a second lane with a short wait, and joins the next long poll. Leaders that move
 * or fail cost a metadata request and a pause; they never become an error of `take`.
 */
export class Fetcher {
  readonly #settings: FetchSettings;
  readonly #requestTimeoutMs: number;
  readonly #onNews: () => void;
  readonly #log: ConnectionConfig['log'];
  readonly #control: ClusterConnection;
  readonly #main: Lane;
  readonly #side: Lane;
  /** In the order in which the next fetch names them: who was served last comes last. */
  readonly #feeds = new Map<string, PartitionFeed>();
  readonly #failingNodes = new Map<number, { readonly backOff: BackOff; retryAt: number }>();
  readonly #metadataBackOff = new BackOff(50, 1_000);
  #metadataRetryAt = 0;
  #refreshing = false;
  #takes = 0;
  #pumpPlanned = false;
  #timer: NodeJS.Timeout | undefined;
  #fatal: TidemarkError | undefined;
  #closed = false;

  constructor(config: ConnectionConfig, options: FetcherOptions) {
    this.#settings = options.settings;
    this.#requestTimeoutMs = options.requestTimeoutMs;
    this.#onNews = options.onNews;
    this.#log = config.log;
    this.#control = options.control;
    this.#main = { connection: new ClusterConnection(config), stale: true, waits: new Map() };
    this.#side = { connection: new ClusterConnection(config), stale: true, waits: new Map() };
  }

  /** Starts a partition, or moves it: what was fetched or asked for under an older start is dropped. Undoes a pause. */
  start({ topic, partition }: TopicPartition, offset: bigint): void {
    const feed = new PartitionFeed({ topic, partition }, offset);
    this.#feeds.set(feed.key, feed);
    this.#planPump();
  }

  stop({ topic, partition }: TopicPartition): void {
    this.#feeds.delete(topicPartitionKey(topic, partition));
    this.#planPump();
  }

  /** A paused partition is not fetched either. What is fetched already stays, and does not count against the bound of all. */
  pause({ topic, partition }: TopicPartition): void {
    const feed = this.#feeds.get(topicPartitionKey(topic, partition));
    if (feed !== undefined) feed.paused = true;
  }

  resume({ topic, partition }: TopicPartition): void {
    const feed = this.#feeds.get(topicPartitionKey(topic, partition));
    if (feed === undefined || !feed.paused) return;
    feed.paused = false;
    if (feed.waiting) this.#onNews();
    this.#planPump();
  }

  /** What has come, in order within each partition; a partition gives about one fetch at a time. Throws the FatalError that ended the reading. */
  take(): FeedItem[] {
    if (this.#fatal !== undefined) throw this.#fatal;
    const ready = [...this.#feeds.values()].filter((feed) => !feed.paused && feed.waiting);
    if (ready.length === 0) return [];
    const first = this.#takes++ % ready.length;
    const items: FeedItem[] = [];
    for (let i = 0; i < ready.length; i++) {
      items.push(...ready[(first + i) % ready.length]!.take(this.#settings.maxPartitionBytes));
    }
    this.#planPump();
    return items;
  }

  /** Ends every fetch. Never throws. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#feeds.clear();
    this.#main.connection.close();
    this.#side.connection.close();
  }

  /** Several partitions are often started one after the other; they shall share a fetch. */
  #planPump(): void {
    if (this.#pumpPlanned || this.#closed) return;
    this.#pumpPlanned = true;
    queueMicrotask(() => {
      this.#pumpPlanned = false;
      this.#pump();
    });
  }

  /** Sends every fetch that can be sent now, and plans to look again when a pause ends. */
  #pump(): void {
    clearTimeout(this.#timer);
    if (this.#closed || this.#fatal !== undefined) return;
    const room = this.#settings.maxBufferedBytes - this.#bufferedBytes();
    if (room <= 0) return;
    const now = performance.now();
    let lookAgainAt = Number.POSITIVE_INFINITY;
    let leaderless = false;
    const byNode = new Map<number, PartitionFeed[]>();
    for (const feed of this.#feeds.values()) {
      if (feed.paused || feed.halted || feed.inFlight || feed.queuedBytes >= this.#settings.maxPartitionBytes) continue;
      const leader = this.#control.knownLeader(feed.topic, feed.partition);
      const retryAt = Math.max(feed.retryAt, leader === undefined ? 0 : (this.#failingNodes.get(leader.nodeId)?.retryAt ?? 0));
      if (retryAt > now) lookAgainAt = Math.min(lookAgainAt, retryAt);
      else if (leader === undefined) leaderless = true;
      else {
        const feeds = byNode.get(leader.nodeId);
        if (feeds === undefined) byNode.set(leader.nodeId, [feed]);
        else feeds.push(feed);
      }
    }
    for (const [nodeId, feeds] of byNode) this.#fetchOnFreeLane(nodeId, feeds, room);
    if (leaderless) {
      if (this.#metadataRetryAt > now) lookAgainAt = Math.min(lookAgainAt, this.#metadataRetryAt);
      else this.#refresh();
    }
    if (lookAgainAt < Number.POSITIVE_INFINITY) this.#timer = setTimeout(() => this.#pump(), Math.ceil(lookAgainAt - now));
  }

  #bufferedBytes(): number {
    let bytes = 0;
    for (const feed of this.#feeds.values()) if (!feed.paused) bytes += feed.queuedBytes;
    return bytes;
  }

  #fetchOnFreeLane(nodeId: number, feeds: readonly PartitionFeed[], room: number): void {
    const shortWaitMs = Math.min(SHORT_WAIT_MS, this.#settings.maxWaitMs);
    const mainWait = this.#main.waits.get(nodeId);
    const sideIsFree = !this.#side.waits.has(nodeId);
    // A long poll only when nobody is left out of it: who is on the side lane wants to join the next one soon.
    if (mainWait === undefined) this.#fetch(this.#main, nodeId, feeds, sideIsFree ? this.#settings.maxWaitMs : shortWaitMs, room);
    else if (sideIsFree && mainWait > shortWaitMs) this.#fetch(this.#side, nodeId, feeds, shortWaitMs, room);
  }

  #fetch(lane: Lane, nodeId: number, feeds: readonly PartitionFeed[], maxWaitMs: number, room: number): void {
    lane.waits.set(nodeId, maxWaitMs);
    for (const feed of feeds) feed.inFlight = true;
    const { isolation, maxBytes, maxPartitionBytes } = this.#settings;
    const exchange = fetchExchange({
      maxWaitMs,
      minBytes: 1,
      maxBytes: Math.min(maxBytes, room),
      isolation,
      partitions: feeds.map(({ topic, partition, position }) => ({
        topic,
        partition,
        leaderEpoch: this.#control.knownLeader(topic, partition)?.epoch ?? -1,
        offset: position,
        maxBytes: maxPartitionBytes,
      })),
    });
    this.#send(lane, nodeId, exchange, maxWaitMs + this.#requestTimeoutMs)
      .then((answer) => this.#accept(nodeId, feeds, answer))
      .catch((error: unknown) => this.#failed(lane, nodeId, error))
      .finally(() => {
        lane.waits.delete(nodeId);
        for (const feed of feeds) feed.inFlight = false;
        this.#pump();
      });
  }

  async #send(lane: Lane, nodeId: number, exchange: Exchange<FetchAnswer>, timeoutMs: number): Promise<FetchAnswer> {
    if (lane.stale) {
      await lane.connection.metadata([], this.#requestTimeoutMs);
      lane.stale = false;
    }
    return await lane.connection.send(nodeId, exchange, { timeoutMs });
  }

  #accept(nodeId: number, asked: readonly PartitionFeed[], answer: FetchAnswer): void {
    if (this.#closed) return;
    if (answer.errorCode !== ErrorCode.NONE) throw toKafkaError(answer.errorCode, { api: 'Fetch' });
    if (this.#failingNodes.delete(nodeId)) this.#log?.('info', 'a broker answers fetches again', { nodeId });
    const answerBytes = answer.partitions.reduce((sum, { records }) => sum + records.length, 0);
    const feeds = new Map(asked.map((feed) => [feed.key, feed]));
    let news = false;
    for (const fetched of answer.partitions) {
      const feed = feeds.get(topicPartitionKey(fetched.topic, fetched.partition));
      // Stopped, or started anew, while the fetch was on its way.
      if (feed === undefined || this.#feeds.get(feed.key) !== feed) continue;
      if (fetched.errorCode !== ErrorCode.NONE) this.#refused(feed, fetched.errorCode);
      else if (this.#queue(feed, fetched, fetched.records.length < answerBytes * SMALL_SHARE)) news = true;
    }
    if (news || this.#fatal !== undefined) this.#onNews();
  }

  #queue(feed: PartitionFeed, fetched: FetchedPartition, copy: boolean): boolean {
    feed.succeeded();
    if (fetched.records.length === 0) return false;
    const bytes = copy ? Buffer.from(fetched.records) : fetched.records;
    const { topic, partition } = feed;
    const from = feed.position;
    const filter = this.#settings.isolation === 'read-committed' ? new ReadCommittedFilter(fetched.aborted) : undefined;
    const { batches, nextOffset, leaderEpoch, damage } = scanFetchedBytes(topic, partition, bytes, from, filter);
    if (damage !== undefined) this.#damaged(feed, damage, nextOffset > from);
    if (nextOffset === from) return false;
    if (damage === undefined) feed.damages = 0;
    feed.position = nextOffset;
    const batch: FetchedBatch = {
      topic,
      partition,
      records: new RecordBatchDecoder(topic, partition, bytes, batches, from),
      nextOffset,
      ...(leaderEpoch < 0 ? {} : { leaderEpoch }),
      highWatermark: fetched.highWatermark,
      lastStableOffset: fetched.lastStableOffset,
      bytes: bytes.length,
    };
    feed.push({ type: 'batch', batch });
    this.#feeds.delete(feed.key);
    this.#feeds.set(feed.key, feed);
    return true;
  }

  /** Damage on the way is mended by fetching again; what stands in front of it is delivered. */
  #damaged(feed: PartitionFeed, damage: string, progress: boolean): void {
    feed.damages = progress ? 1 : feed.damages + 1;
    this.#log?.('warn', 'fetched bytes are damaged', { topic: feed.topic, partition: feed.partition, damage, times: feed.damages });
    if (feed.damages < DAMAGES_UNTIL_FATAL) feed.failed(performance.now());
    else {
      this.#fatal = new FatalError(
        `${damage}. It was fetched ${feed.damages} times: the log of the leader is corrupt. Restore it from a replica, or start behind this batch.`,
      );
    }
  }

  #refused(feed: PartitionFeed, code: number): void {
    const now = performance.now();
    const place = { api: 'Fetch', topic: feed.topic, partition: feed.partition };
    if (code === ErrorCode.OFFSET_OUT_OF_RANGE) {
      feed.halted = true;
      this.#lookUpRange(feed).catch((error: unknown) => {
        feed.halted = false;
        feed.failed(performance.now());
        if (!(error instanceof RetriableError)) this.#end(error);
        this.#pump();
      });
      return;
    }
    // A broker that runs short of memory or files answers UNKNOWN_SERVER_ERROR. Fetching again harms nothing, and Java's consumer does so too.
    if (!isRetriable(code) && code !== ErrorCode.UNKNOWN_SERVER_ERROR) {
      this.#fatal = toKafkaError(code, place);
      return;
    }
    feed.failed(now);
    if (code === ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) this.#unknown(feed, now);
    this.#log?.('debug', 'a partition cannot be fetched now', { topic: feed.topic, partition: feed.partition, code });
    this.#refresh();
  }

  /** A stale leader may answer OFFSET_OUT_OF_RANGE too, so whoever leads now is asked where the log begins and ends. */
  async #lookUpRange(feed: PartitionFeed): Promise<void> {
    const { topic, partition, position } = feed;
    await this.#control.metadata([topic], this.#requestTimeoutMs);
    const ask = async (timestamp: bigint): Promise<bigint> => {
      const found = await lookUpOffsets(this.#control, [{ topic, partition, timestamp }], 'read-uncommitted', this.#requestTimeoutMs);
      return found.get(feed.key)!.offset;
    };
    const logStart = await ask(EARLIEST);
    const logEnd = await ask(LATEST);
    if (this.#closed || this.#feeds.get(feed.key) !== feed) return;
    if (position >= logStart && position <= logEnd) {
      feed.halted = false;
      feed.failed(performance.now());
      this.#pump();
      return;
    }
    feed.push({ type: 'out-of-range', topic, partition, position, logStart, logEnd });
    this.#onNews();
  }

  #unknown(feed: PartitionFeed, now: number): void {
    feed.missingSince ??= now;
    if (feed.reportedMissing || now - feed.missingSince < MISSING_GRACE_MS) return;
    feed.reportedMissing = true;
    feed.push({ type: 'missing', topic: feed.topic, partition: feed.partition });
    this.#onNews();
  }

  #failed(lane: Lane, nodeId: number, error: unknown): void {
    if (this.#closed) return;
    lane.stale = true;
    if (!(error instanceof RetriableError)) {
      this.#end(error);
      return;
    }
    let failing = this.#failingNodes.get(nodeId);
    if (failing === undefined) {
      failing = { backOff: new BackOff(50, 1_000), retryAt: 0 };
      this.#failingNodes.set(nodeId, failing);
      this.#log?.('warn', 'fetching from a broker fails; trying again until it works', { nodeId, error: error.message });
    }
    failing.retryAt = performance.now() + failing.backOff.next();
    this.#refresh();
  }

  #refresh(): void {
    if (this.#refreshing || this.#closed) return;
    this.#refreshing = true;
    const topics = [...new Set([...this.#feeds.values()].map(({ topic }) => topic))];
    this.#control
      .metadata(topics, this.#requestTimeoutMs)
      .then(() => this.#learned())
      .catch((error: unknown) => {
        if (!this.#closed && !(error instanceof RetriableError)) this.#end(error);
        this.#metadataRetryAt = performance.now() + this.#metadataBackOff.next();
      })
      .finally(() => {
        this.#refreshing = false;
        this.#pump();
      });
  }

  #learned(): void {
    const now = performance.now();
    let leaderless = false;
    for (const feed of this.#feeds.values()) {
      const { topic, partition } = feed;
      if (this.#control.knownLeader(topic, partition) !== undefined) continue;
      leaderless = true;
      const known = this.#control.knownTopic(topic);
      if (known === undefined) continue;
      if (known.errorCode !== ErrorCode.NONE && !isRetriable(known.errorCode)) {
        this.#end(toKafkaError(known.errorCode, { api: 'Metadata', topic }));
        return;
      }
      if (
        known.errorCode === ErrorCode.UNKNOWN_TOPIC_OR_PARTITION ||
        (known.errorCode === ErrorCode.NONE && known.partitions[partition] === undefined)
      ) {
        this.#unknown(feed, now);
      }
    }
    if (leaderless) this.#metadataRetryAt = now + this.#metadataBackOff.next();
    else this.#metadataBackOff.reset();
  }

  #end(error: unknown): void {
    this.#fatal ??= error instanceof FatalError ? error : new FatalError(`reading failed: ${String(error)}`, { cause: error });
    this.#onNews();
  }
}
