import type { Random } from '../model/clock.ts';
import { type Headers, NO_HEADERS } from '../model/headers.ts';
import { idempotencyKeyHeader, withIdempotencyKey } from '../model/idempotency-key.ts';
import { partitionForKey } from '../model/partitioner.ts';
import type { Payload } from '../model/record.ts';
import type { Producer } from '../kafka/port.ts';
import type { Collector } from '../operators/step.ts';
import { OutputError } from './record-failure.ts';

interface StagedOutput {
  topic: string;
  partition: number | undefined | ((partitionCount: number) => number | undefined);
  key: Payload;
  value: Payload;
  timestamp: number;
  headers: Headers;
}

/** Counters of one output topic, and where its next record without a key goes. */
interface OutputTopic {
  readonly topic: string;
  readonly counters: { records: number };
  turn: number;
}

/** More slots than this are given back after a record with very many outputs. */
const MAX_KEPT_SLOTS = 1024;

/** More than a record's own fields and one header's lengths take (varints of at most 5 bytes, the timestamp of 10). */
const RECORD_OVERHEAD = 64;
const HEADER_OVERHEAD = 16;

/**
 * The only exit of a worker's records to Kafka. The outputs of one record are staged in slots that are used again and again: they go to
 * the producer all together once the record's processing has ended, or not at all.
 */
export class RecordCollector implements Collector {
  readonly #producer: Producer;
  readonly #random: Random;
  readonly #countersOf: (topic: string) => { records: number };
  readonly #topics = new Map<string, OutputTopic>();
  #lastTopic: OutputTopic | undefined;
  #slots: StagedOutput[] = [];
  #staged = 0;
  /** How often the current record has used an idempotency key in a topic; of its first `#counted` outputs. */
  readonly #keys = new Map<string, number>();
  #counted = 0;

  constructor(producer: Producer, random: Random, countersOf: (topic: string) => { records: number }) {
    this.#producer = producer;
    this.#random = random;
    this.#countersOf = countersOf;
  }

  partitionCount(topic: string): number | undefined {
    return this.#producer.partitionCount(topic);
  }

  /**
   * Outputs of one record inherit its idempotency key. The second and further ones that carry it into the same topic get a number, which is the
   * same at each repetition: a consumer that dedups by the key would otherwise keep only the first.
   */
  send(topic: string, partition: StagedOutput['partition'], key: Payload, value: Payload, timestamp: number, headers: Headers): void {
    if (this.#staged > 0 && headers !== NO_HEADERS && headers.length > 0) headers = this.#ownKey(topic, headers);
    const slot = this.#slots[this.#staged];
    if (slot === undefined) {
      this.#slots.push({ topic, partition, key, value, timestamp, headers });
    } else {
      slot.topic = topic;
      slot.partition = partition;
      slot.key = key;
      slot.value = value;
      slot.timestamp = timestamp;
      slot.headers = headers;
    }
    this.#staged++;
  }

  /** Drops what the current record has staged. */
  drop(): void {
    if (this.#slots.length > MAX_KEPT_SLOTS) this.#slots = [];
    // A topic and a partition may still point to what the record held; the payloads are replaced by the next record's.
    this.#staged = 0;
    if (this.#counted > 0) {
      this.#counted = 0;
      this.#keys.clear();
    }
  }

  /**
   * Finds the partition of every staged output, and checks its size. Answers the topic which is not loaded yet, if there is one: load it, and
   * call again. Throws errors of the record, and then nothing of it is written.
   */
  resolve(): string | undefined {
    for (let i = 0; i < this.#staged; i++) {
      const output = this.#slots[i]!;
      const { topic, key, partition } = output;
      const count = this.#producer.partitionCount(topic);
      if (count === undefined) return topic;
      const chosen = typeof partition === 'function' ? partition(count) : partition;
      if (chosen === undefined) {
        output.partition = key === null ? this.#nextTurn(topic, count) : partitionForKey(key, count);
      } else if (Number.isInteger(chosen) && chosen >= 0 && chosen < count) {
        output.partition = chosen;
      } else {
        throw new OutputError(`an output is meant for partition ${chosen}, but topic '${topic}' has partitions 0 to ${count - 1}`);
      }
      this.#requireSize(output);
    }
    return undefined;
  }

  /** Hands the resolved outputs to the producer. What it throws is an error of the transaction. */
  append(): void {
    const producer = this.#producer;
    for (let i = 0; i < this.#staged; i++) {
      const { topic, partition, key, value, timestamp, headers } = this.#slots[i]!;
      producer.append(topic, partition as number, key, value, timestamp, headers);
      this.#topic(topic).counters.records++;
    }
    this.drop();
  }

  #ownKey(topic: string, headers: Headers): Headers {
    for (; this.#counted < this.#staged; this.#counted++) {
      const earlier = this.#slots[this.#counted]!;
      this.#countKey(earlier.topic, idempotencyKeyHeader(earlier.headers));
    }
    const key = idempotencyKeyHeader(headers);
    const uses = key === undefined ? undefined : this.#keys.get(`${topic}/${key}`);
    if (uses === undefined) return headers;
    this.#countKey(topic, key);
    return withIdempotencyKey(headers, `${key}~${uses}`);
  }

  #countKey(topic: string, key: string | undefined): void {
    if (key === undefined) return;
    const name = `${topic}/${key}`;
    this.#keys.set(name, (this.#keys.get(name) ?? 0) + 1);
  }

  /** The exact size is only computed where a cheap upper bound does not do: three bytes for each UTF-16 unit of a string. */
  #requireSize({ topic, key, value, headers }: StagedOutput): void {
    const max = this.#producer.maxRecordBytes(topic);
    let bound = RECORD_OVERHEAD + 3 * ((key?.length ?? 0) + (value?.length ?? 0));
    if (headers !== NO_HEADERS) {
      for (const header of headers) bound += HEADER_OVERHEAD + 3 * header.key.length + (header.value?.length ?? 0);
    }
    if (bound <= max) return;
    const bytes = this.#producer.recordBytes(key, value, headers);
    if (bytes <= max) return;
    throw new OutputError(
      `an output of ${bytes} bytes is larger than topic '${topic}' takes (${max}). Raise max.message.bytes of the topic, or make the output smaller`,
    );
  }

  /** Without a key, each record goes to the next partition; the first one is left to chance, so that many instances do not start alike. */
  #nextTurn(topic: string, partitionCount: number): number {
    const output = this.#topic(topic);
    if (output.turn < 0) output.turn = Math.floor(this.#random() * partitionCount);
    const turn = output.turn % partitionCount;
    output.turn = turn + 1;
    return turn;
  }

  #topic(topic: string): OutputTopic {
    if (this.#lastTopic?.topic === topic) return this.#lastTopic;
    let output = this.#topics.get(topic);
    if (output === undefined) {
      output = { topic, counters: this.#countersOf(topic), turn: -1 };
      this.#topics.set(topic, output);
    }
    this.#lastTopic = output;
    return output;
  }
}
