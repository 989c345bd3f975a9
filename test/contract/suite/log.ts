import type { FetchOptions, FetchedBatch, KafkaClient, LogBounds, Producer, TransactionalProducer } from '../../../src/kafka/port.ts';
import { NO_HEADERS } from '../../../src/model/headers.ts';
import type { ConsumedRecord } from '../../../src/model/record.ts';
import { topicPartitionKey, type PartitionOffset } from '../../../src/model/topic-partition.ts';

const DEADLINE_MS = 20_000;

export function recordsOf(batch: FetchedBatch): ConsumedRecord[] {
  const records: ConsumedRecord[] = [];
  for (let record = batch.records.next(); record !== undefined; record = batch.records.next()) records.push(record);
  return records;
}

export function valuesOf(records: readonly ConsumedRecord[]): (string | null)[] {
  return records.map(({ value }) => value?.toString('utf8') ?? null);
}

/** Every record of the topic that a reader of this isolation may see now, from these positions or the starts of the logs. */
export async function readLog(
  client: KafkaClient,
  topic: string,
  options: { readonly fetch?: FetchOptions; readonly from?: readonly PartitionOffset[] } = {},
): Promise<ConsumedRecord[]> {
  const logs = await boundsOf(client, topic);
  const from = options.from ?? logs.map(({ partition, start }) => ({ topic, partition, offset: start }));
  const committedOnly = options.fetch?.isolation !== 'read-uncommitted';
  const left = new Map<string, bigint>();
  for (const { partition, lastStable, highWatermark } of logs) {
    const end = committedOnly ? lastStable : highWatermark;
    const start = from.find((each) => each.partition === partition)?.offset;
    if (start !== undefined && start < end) left.set(topicPartitionKey(topic, partition), end);
  }
  const reader = client.logReader({ fetch: { maxWaitMs: 100, ...options.fetch } });
  const records: ConsumedRecord[] = [];
  try {
    reader.startFrom(from);
    const deadline = performance.now() + DEADLINE_MS;
    while (left.size > 0) {
      if (performance.now() > deadline) throw new Error(`not read within ${DEADLINE_MS} ms: ${JSON.stringify([...left].map(String))}`);
      for (const batch of await reader.poll(500)) {
        for (let record = batch.records.next(); record !== undefined; record = batch.records.next()) records.push(record);
        const key = topicPartitionKey(topic, batch.partition);
        const end = left.get(key);
        if (end !== undefined && batch.nextOffset >= end) left.delete(key);
      }
    }
  } finally {
    await reader.close();
  }
  return records;
}

export async function readValues(client: KafkaClient, topic: string, fetch: FetchOptions = {}): Promise<(string | null)[]> {
  return valuesOf(await readLog(client, topic, { fetch }));
}

/** Appends values without keys to one partition, at one time. */
export function appendAll(producer: Producer, topic: string, values: readonly string[], partition = 0): void {
  for (const value of values) producer.append(topic, partition, null, value, 1_700_000_000_000, NO_HEADERS);
}

/** One whole committed transaction. */
export async function commitValues(
  producer: TransactionalProducer,
  topic: string,
  values: readonly string[],
  partition = 0,
): Promise<void> {
  producer.begin();
  appendAll(producer, topic, values, partition);
  await producer.commit();
}

/** The first and the next offset, and what is stable, of a topic's partition 0. */
export async function bounds(client: KafkaClient, topic: string): Promise<{ start: bigint; lastStable: bigint; highWatermark: bigint }> {
  const [first] = await boundsOf(client, topic);
  if (first === undefined) throw new Error(`topic '${topic}' has no partition`);
  return { start: first.start, lastStable: first.lastStable, highWatermark: first.highWatermark };
}

async function boundsOf(client: KafkaClient, topic: string): Promise<readonly LogBounds[]> {
  const admin = client.admin();
  try {
    return await admin.logBounds(topic);
  } finally {
    await admin.close();
  }
}
