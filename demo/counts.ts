import type { Pool } from 'pg';
import type { Admin, KafkaClient, LogReader } from '../src/index.ts';
import type { Names } from './guarantees.ts';

/** What became of the records that were sent, on one side of the boundary. */
export interface Count {
  /** Sent, and nowhere to be found. */
  readonly lost: number;
  /** There more than once: how many too many. */
  readonly duplicated: number;
  readonly recordsOut: number;
}

const READ_DEADLINE_MS = 30_000;

/** How often each id is there, against how often it should be. */
function compare(found: Iterable<string>, expected: ReadonlyMap<string, number>): Count {
  const seen = new Map<string, number>();
  let recordsOut = 0;
  for (const id of found) {
    recordsOut++;
    seen.set(id, (seen.get(id) ?? 0) + 1);
  }
  let lost = 0;
  let duplicated = 0;
  for (const [id, times] of expected) lost += Math.max(0, times - (seen.get(id) ?? 0));
  for (const [id, times] of seen) {
    const wanted = expected.get(id);
    if (wanted === undefined) throw new Error(`'${id}' was never sent, but it is there`);
    duplicated += Math.max(0, times - wanted);
  }
  return { lost, duplicated, recordsOut };
}

/** The values of a topic as a `read_committed` reader sees them. */
export async function committedValues(client: KafkaClient, admin: Admin, topic: string): Promise<string[]> {
  const bounds = await admin.logBounds(topic);
  const reader: LogReader = client.logReader();
  const values: string[] = [];
  try {
    const open = new Map(bounds.filter(({ start, lastStable }) => lastStable > start).map((bound) => [bound.partition, bound.lastStable]));
    reader.startFrom(bounds.map(({ partition, start }) => ({ topic, partition, offset: start })));
    const deadline = Date.now() + READ_DEADLINE_MS;
    while (open.size > 0) {
      if (Date.now() > deadline) throw new Error(`${topic} could not be read to its end within ${READ_DEADLINE_MS} ms`);
      for (const batch of await reader.poll(500)) {
        for (let record = batch.records.next(); record !== undefined; record = batch.records.next())
          values.push(record.value?.toString('utf8') ?? '');
        if (batch.nextOffset >= (open.get(batch.partition) ?? 0n)) open.delete(batch.partition);
      }
    }
  } finally {
    await reader.close();
  }
  return values;
}

export async function countInKafka(
  client: KafkaClient,
  admin: Admin,
  topics: readonly string[],
  expected: ReadonlyMap<string, number>,
): Promise<Count> {
  const ids: string[] = [];
  for (const topic of topics) {
    for (const value of await committedValues(client, admin, topic)) ids.push((JSON.parse(value) as { id: string }).id);
  }
  return compare(ids, expected);
}

export async function countInPostgres(pool: Pool, names: Names, table: string, expected: ReadonlyMap<string, number>): Promise<Count> {
  const { rows } = await pool.query<{ id: string }>(`SELECT id FROM "${names.schema}"."${table}"`);
  return compare(
    rows.map(({ id }) => id),
    expected,
  );
}
