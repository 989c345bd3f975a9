import { scanFetchedBytes } from '../../../../src/kafka/kafkajs/fetched-bytes.ts';
import { ConnectionLostError } from '../../../../src/kafka/kafkajs/connection-error.ts';
import type { SenderConnection } from '../../../../src/kafka/kafkajs/sender.ts';
import { ErrorCode } from '../../../../src/kafka/kafkajs/wire/error-code.ts';
import type { Exchange } from '../../../../src/kafka/kafkajs/wire/exchange.ts';
import { WireReader } from '../../../../src/kafka/kafkajs/wire/reader.ts';
import { RecordBatchDecoder } from '../../../../src/kafka/kafkajs/wire/record-batch-decoder.ts';
import { WireWriter } from '../../../../src/kafka/kafkajs/wire/writer.ts';
import { topicPartitionKey } from '../../../../src/model/topic-partition.ts';

export interface ReceivedBatch {
  readonly topic: string;
  readonly partition: number;
  readonly bytes: Buffer;
  readonly epoch: number;
  readonly baseSequence: number;
  readonly values: readonly string[];
}

export interface ReceivedRequest {
  readonly nodeId: number;
  readonly batches: readonly ReceivedBatch[];
}

/**
 * What becomes of a request: an error code per partition instead of its execution, an answer that never comes although it is executed
 * (`lose-answer`), a connection that breaks before it is executed (`lose-request`), an answer without results (`mute`), or one that waits.
 */
export type Fate = 'lose-answer' | 'lose-request' | 'mute' | Promise<void> | ReadonlyMap<string, number> | undefined;

interface PartitionLog {
  leader: number | undefined;
  readonly values: string[];
  readonly sequences: number[];
  epoch: number;
  nextSequence: number;
  /** Base sequences of the last five batches, which a broker remembers. */
  recent: number[];
}

/** Brokers in memory that take Produce requests, check sequences as Kafka does, and let a test decide each request's fate. */
export class ProduceBrokers implements SenderConnection {
  readonly requests: ReceivedRequest[] = [];
  readonly inFlight = new Map<number, number>();
  readonly logs = new Map<string, PartitionLog>();
  refreshes = 0;
  fate: (request: ReceivedRequest) => Fate = () => undefined;
  onRefresh: () => void = () => {};
  /** Of a request in flight per node, the highest number that was seen. */
  mostInFlight = 0;

  constructor(topics: Readonly<Record<string, readonly number[]>>) {
    for (const [topic, leaders] of Object.entries(topics)) {
      leaders.forEach((leader, partition) => {
        this.logs.set(topicPartitionKey(topic, partition), {
          leader,
          values: [],
          sequences: [],
          epoch: -1,
          nextSequence: 0,
          recent: [],
        });
      });
    }
  }

  log(topic: string, partition: number): PartitionLog {
    const log = this.logs.get(topicPartitionKey(topic, partition));
    if (log === undefined) throw new Error(`no ${topic}/${partition}`);
    return log;
  }

  knownLeader(topic: string, partition: number): { nodeId: number; epoch: number } | undefined {
    const { leader } = this.log(topic, partition);
    return leader === undefined ? undefined : { nodeId: leader, epoch: 0 };
  }

  versions(): Promise<{ minVersion: number; maxVersion: number }> {
    return Promise.resolve({ minVersion: 3, maxVersion: 8 });
  }

  refresh(): Promise<void> {
    this.refreshes++;
    this.onRefresh();
    return Promise.resolve();
  }

  async send<T>(nodeId: number, exchange: Exchange<T>): Promise<T> {
    const writer = new WireWriter();
    exchange.encode(writer);
    const request = { nodeId, batches: readBatches(new WireReader(writer.toBuffer(), 'Produce')) };
    this.requests.push(request);
    const before = this.inFlight.get(nodeId) ?? 0;
    this.inFlight.set(nodeId, before + 1);
    this.mostInFlight = Math.max(this.mostInFlight, before + 1);
    try {
      const fate = this.fate(request);
      if (fate instanceof Promise) await fate;
      else await new Promise((resolve) => setImmediate(resolve));
      if (fate === 'lose-request') throw new ConnectionLostError('the connection broke');
      const results = fate === 'mute' ? [] : request.batches.map((batch) => ({ ...batch, code: this.#take(nodeId, batch, fate) }));
      if (fate === 'lose-answer') throw new ConnectionLostError('the connection broke');
      return exchange.decode(new WireReader(answer(results), 'Produce'));
    } finally {
      this.inFlight.set(nodeId, before);
    }
  }

  #take(nodeId: number, batch: ReceivedBatch, fate: Fate): number {
    const refused = fate instanceof Map ? fate.get(topicPartitionKey(batch.topic, batch.partition)) : undefined;
    if (refused !== undefined) return refused;
    const log = this.log(batch.topic, batch.partition);
    if (log.leader !== nodeId) return ErrorCode.NOT_LEADER_OR_FOLLOWER;
    if (batch.epoch < log.epoch) return ErrorCode.INVALID_PRODUCER_EPOCH;
    if (batch.epoch > log.epoch) Object.assign(log, { epoch: batch.epoch, nextSequence: 0, recent: [] });
    if (log.recent.includes(batch.baseSequence)) return ErrorCode.DUPLICATE_SEQUENCE_NUMBER;
    if (batch.baseSequence !== log.nextSequence) return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER;
    log.values.push(...batch.values);
    log.sequences.push(batch.baseSequence);
    log.nextSequence = (batch.baseSequence + batch.values.length) % 2 ** 31;
    log.recent = [...log.recent, batch.baseSequence].slice(-5);
    return ErrorCode.NONE;
  }
}

function readBatches(reader: WireReader): ReceivedBatch[] {
  reader.nullableString();
  reader.int16();
  reader.int32();
  const topics = reader.array((r) => {
    const topic = r.string();
    return r.array((each) => readBatch(topic, each.int32(), each.bytes()));
  });
  return topics.flat();
}

function readBatch(topic: string, partition: number, bytes: Buffer): ReceivedBatch {
  const { batches } = scanFetchedBytes(topic, partition, bytes, 0n, undefined);
  const decoder = new RecordBatchDecoder(topic, partition, bytes, batches, 0n);
  const values: string[] = [];
  for (let record = decoder.next(); record !== undefined; record = decoder.next()) values.push(record.value?.toString() ?? '');
  return { topic, partition, bytes, epoch: bytes.readInt16BE(51), baseSequence: bytes.readInt32BE(53), values };
}

function answer(results: readonly (ReceivedBatch & { readonly code: number })[]): Buffer {
  const writer = new WireWriter();
  writer.array(results, (w, { topic, partition, code }) => {
    w.string(topic).array([partition], (each) => {
      each.int32(partition).int16(code).int64(0n).int64(-1n).int64(0n);
      each.array([], () => {}).nullableString(null);
    });
  });
  return writer.int32(0).toBuffer();
}
