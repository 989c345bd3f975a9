import { setTimeout as sleep } from 'node:timers/promises';
import { IDEMPOTENCY_KEY_HEADER, type IdempotentProducer, type KafkaClient, partitionForKey, textHeader } from '../../src/index.ts';

/** The value of an input record. `id` is unique but where it was sent twice, `n` counts the records of a key. */
export interface InputValue {
  readonly id: string;
  readonly key: string;
  readonly n: number;
}

export interface InputOptions {
  readonly records: number;
  /** Default 50. */
  readonly keys?: number;
  /** Each n-th record is sent twice, with the same idempotency key, as by a producer that repeats itself. Default: none. */
  readonly repeatEvery?: number;
  /** The number of the first record. Default 0. */
  readonly from?: number;
}

/** Small batches: a fetch brings whole ones, and one fetch shall not bring all. */
const BATCH_BYTES = 4 * 1024;

/** Writes input records, in order within each key, spread evenly over the keys. */
export async function fillInput(client: KafkaClient, topic: string, options: InputOptions): Promise<void> {
  const writer = await InputWriter.open(client, topic, options);
  try {
    await writer.write(options.records);
  } finally {
    await writer.close();
  }
}

/** Writes input records until it is stopped, so that what happens meanwhile happens in the middle of the flow. */
export class InputFlow {
  readonly #stop = new AbortController();
  readonly #run: Promise<number>;

  constructor(client: KafkaClient, topic: string, options: InputOptions & { readonly recordsPerSecond: number }) {
    this.#run = this.#write(client, topic, options);
    // Thrown by `stop`.
    this.#run.catch(() => undefined);
  }

  /** How many records there are. */
  async stop(): Promise<number> {
    this.#stop.abort();
    return await this.#run;
  }

  async #write(client: KafkaClient, topic: string, options: InputOptions & { readonly recordsPerSecond: number }): Promise<number> {
    const writer = await InputWriter.open(client, topic, options);
    try {
      while (!this.#stop.signal.aborted) {
        await writer.write(Math.ceil(options.recordsPerSecond / FLOW_STEPS));
        await sleep(1_000 / FLOW_STEPS);
      }
      return writer.written;
    } finally {
      await writer.close();
    }
  }
}

const FLOW_STEPS = 10;

class InputWriter {
  readonly #producer: IdempotentProducer;
  readonly #topic: string;
  readonly #options: InputOptions;
  // Of today: the broker deletes older records than its retention allows.
  readonly #started = Date.now();
  #next: number;

  private constructor(producer: IdempotentProducer, topic: string, options: InputOptions) {
    this.#producer = producer;
    this.#topic = topic;
    this.#options = options;
    this.#next = options.from ?? 0;
  }

  static async open(client: KafkaClient, topic: string, options: InputOptions): Promise<InputWriter> {
    const producer = client.idempotentProducer({ batchBytes: BATCH_BYTES });
    const writer = new InputWriter(producer, topic, options);
    try {
      await producer.init();
      await producer.loadTopics([topic]);
    } catch (error) {
      await writer.close();
      throw error;
    }
    return writer;
  }

  /** Those that were sent twice count once. */
  get written(): number {
    return this.#next - (this.#options.from ?? 0);
  }

  async write(records: number): Promise<void> {
    const { keys = 50, repeatEvery = Infinity } = this.#options;
    const partitions = this.#producer.partitionCount(this.#topic) ?? 1;
    for (const end = this.#next + records; this.#next < end; this.#next++) {
      const i = this.#next;
      const key = `key-${i % keys}`;
      const value: InputValue = { id: `record-${i}`, key, n: Math.floor(i / keys) };
      const headers = [textHeader(IDEMPOTENCY_KEY_HEADER, value.id)];
      for (let times = (i + 1) % repeatEvery === 0 ? 2 : 1; times > 0; times--) {
        this.#producer.append(this.#topic, partitionForKey(key, partitions), key, JSON.stringify(value), this.#started + i, headers);
      }
      await this.#producer.ready();
    }
    await this.#producer.flush();
  }

  async close(): Promise<void> {
    await this.#producer.close();
  }
}
