import { ConfigurationError, DeserialisationError, TopologyError } from '../model/errors.ts';
import { coordinatesKey, idempotencyKeyHeader } from '../model/idempotency-key.ts';
import type { ConsumedRecord } from '../model/record.ts';
import type { TopicPartition } from '../model/topic-partition.ts';
import type { Collector, Emit, Step } from '../operators/step.ts';
import type { SinkCounters, TopicCounters } from '../ops/metrics.ts';
import { type RecordReader, recordReader } from '../serde/record-reader.ts';
import type { RefusedRecord, SinkBatch, SinkRecord, SourceBytes } from '../sink/port.ts';
import type { SourceNode } from '../topology/graph.ts';
import type { SinkStage } from '../topology/topology.ts';
import { buildChain } from './chain.ts';
import { type FailurePolicies, PoisonRecordError, type RecordFailure, recordFailure } from './record-failure.ts';
import { RecordQueue } from './record-queue.ts';
import { SinkKeys } from './sink-keys.ts';

export interface BatchLimits {
  readonly records: number;
  /** Bytes of the source records in a batch. */
  readonly bytes: number;
  /** Source records that are looked at before the event loop gets a turn, however few of them come through. */
  readonly sliceRecords: number;
}

/**
 * - `full`: the batch has all that it may have.
 * - `drained`: nothing more to read for now.
 * - `slice`: there is more, but it is somebody else's turn.
 * - `poison`: the next record stops the stage; see `poison`.
 */
export type FillResult = 'full' | 'drained' | 'slice' | 'poison';

const NO_OUTPUTS: Collector = {
  partitionCount: () => undefined,
  send: () => {
    throw new TopologyError('a sink stage has no outputs to Kafka');
  },
};

export interface SinkBatchBuilderParts {
  readonly stage: SinkStage;
  readonly partition: TopicPartition;
  readonly source: SourceNode;
  readonly policies: FailurePolicies;
  readonly limits: BatchLimits;
  readonly counters: SinkCounters;
  readonly topicCounters: TopicCounters;
}

/** Turns what was read of one partition into batches for the sink: deserialises, runs the stateless steps, and gives each result its key. */
export class SinkBatchBuilder {
  /** What was read and not yet looked at. */
  readonly queue = new RecordQueue(0n);
  /** Why the stage has to stop, once the records before are written. */
  poison: PoisonRecordError | undefined;
  readonly #parts: SinkBatchBuilderParts;
  readonly #keys: SinkKeys;
  readonly #step: Step;
  readonly #reader: RecordReader;
  #from = 0n;
  #records: SinkRecord<unknown, unknown>[] = [];
  #refused: RefusedRecord[] = [];
  #bytes = 0;
  /** What the record that is being looked at has given so far. */
  #emitted: SinkRecord<unknown, unknown>[] = [];
  #source: SourceBytes = { key: null, value: null };

  constructor(parts: SinkBatchBuilderParts) {
    const { stage, partition, source } = parts;
    this.#parts = parts;
    this.#keys = new SinkKeys(stage.sink);
    this.#reader = recordReader(partition.topic, source.keySerde, source.valueSerde);
    const emit: Emit = (key, value, context) => {
      this.#emitted.push({ key, value, context, idempotencyKey: this.#keys.keyFor(key, value, context), source: this.#source });
    };
    const step = buildChain({ ...stage, steps: stage.processors }, { collector: NO_OUTPUTS, emit }).get(source.name);
    if (step === undefined) throw new TopologyError(`stage '${stage.name}' has no source '${source.name}'`);
    this.#step = step;
  }

  /** Drops everything; the next batch begins at `from`, and the next record comes from `readFrom` on. */
  restart(from: bigint, readFrom: bigint = from): void {
    this.queue.clear(readFrom);
    this.#from = from;
    this.#empty();
  }

  /** Records, refused ones included. */
  get size(): number {
    return this.#records.length + this.#refused.length;
  }

  /** Whether a batch would move the position, be it without a record. */
  get moved(): boolean {
    return this.queue.position !== this.#from;
  }

  fill(): FillResult {
    if (this.poison !== undefined) return 'poison';
    const { limits } = this.#parts;
    for (let seen = 0; ; seen++) {
      const record = this.queue.head;
      if (record === undefined) return 'drained';
      if (this.size >= limits.records || this.#bytes >= limits.bytes) return 'full';
      if (seen >= limits.sliceRecords) return 'slice';
      if (!this.#take(record)) return 'poison';
      this.#bytes += (record.key?.length ?? 0) + (record.value?.length ?? 0);
      this.#parts.topicCounters.records++;
      this.queue.advance();
    }
  }

  /** What was filled, as one batch. */
  take(): SinkBatch<unknown, unknown> {
    const { topic, partition } = this.#parts.partition;
    const refused = this.#refused;
    const batch = {
      topic,
      partition,
      from: this.#from,
      nextOffset: this.queue.position,
      records: this.#records,
      ...(refused.length > 0 ? { refused } : {}),
    };
    this.#from = batch.nextOffset;
    this.#empty();
    return batch;
  }

  #empty(): void {
    this.#records = [];
    this.#refused = [];
    this.#bytes = 0;
  }

  /** False: the stage stops at this record. */
  #take(record: ConsumedRecord): boolean {
    this.#emitted = [];
    // Its slices are only made where they are asked for.
    this.#source = record;
    this.#keys.reset();
    try {
      this.#step(...this.#deserialise(record), record);
    } catch (thrown) {
      const failure = recordFailure(record, thrown, this.#parts.source.name);
      try {
        return this.#decide(failure);
      } catch (error) {
        return this.#stop({ ...failure, error: error instanceof Error ? error : new Error(String(error)) });
      }
    }
    for (const emitted of this.#emitted) this.#records.push(emitted);
    return true;
  }

  /** Nothing of the record that failed is kept, whatever it had given before. */
  #decide(failure: RecordFailure): boolean {
    const { policies, stage, counters } = this.#parts;
    switch (policies.decide(failure)) {
      case 'fail':
        return this.#stop(failure);
      case 'skip':
        counters.skipped++;
        return true;
      case 'dead-letter': {
        if (stage.sink.sink.keepsDeadLetters !== true) {
          throw new ConfigurationError(`the policy says 'dead-letter', but this sink keeps none (${failure.error.message})`);
        }
        const { record, error, node, kind } = failure;
        const idempotencyKey = idempotencyKeyHeader(record.headers) ?? coordinatesKey(record);
        const reason = `${kind}${node === undefined ? '' : `, step '${node}'`}: ${error.message}`;
        this.#refused.push({ context: record, source: this.#source, idempotencyKey, reason });
        return true;
      }
    }
  }

  #stop(failure: RecordFailure): false {
    this.poison = new PoisonRecordError(failure, `stage '${this.#parts.stage.name}'`);
    return false;
  }

  #deserialise(record: ConsumedRecord): [key: unknown, value: unknown] {
    try {
      return [this.#reader.key(record), this.#reader.value(record)];
    } catch (error) {
      if (error instanceof DeserialisationError) throw error;
      throw new DeserialisationError(error instanceof Error ? error.message : String(error), { cause: error });
    }
  }
}
