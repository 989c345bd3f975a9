import { IDEMPOTENCY_KEY_HEADER, type KafkaClient, partitionForKey, textHeader } from '../../src/index.ts';

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
  const { records, keys = 50, repeatEvery = Infinity, from = 0 } = options;
  const producer = client.idempotentProducer({ batchBytes: BATCH_BYTES });
  try {
    await producer.init();
    await producer.loadTopics([topic]);
    const partitions = producer.partitionCount(topic) ?? 1;
    // Not a fixed time: the broker's retention would soon delete the input, and the outputs, which have its timestamps.
    const began = Date.now();
    for (let i = from; i < from + records; i++) {
      const key = `key-${i % keys}`;
      const value: InputValue = { id: `record-${i}`, key, n: Math.floor(i / keys) };
      const times = (i + 1) % repeatEvery === 0 ? 2 : 1;
      for (let time = 0; time < times; time++) {
        const headers = [textHeader(IDEMPOTENCY_KEY_HEADER, value.id)];
        producer.append(topic, partitionForKey(key, partitions), key, JSON.stringify(value), began + i - from, headers);
      }
      await producer.ready();
    }
    await producer.flush();
  } finally {
    await producer.close();
  }
}
