import { setTimeout as sleep } from 'node:timers/promises';
import type { IndependentReader, IndependentRecord } from './independent-reader.ts';
import type { InputValue } from './input-records.ts';

/** What became of the records of a topic, by their ids. Nothing of it is known from the code under test. */
export interface Judgement {
  /** How many there are where they should be. */
  readonly records: number;
  readonly lost: readonly string[];
  /** Each as often as it is there too much. */
  readonly duplicated: readonly string[];
  /** There, but never sent. */
  readonly invented: readonly string[];
  /** Behind a later one of the same key. */
  readonly outOfOrder: readonly string[];
}

export interface KafkaJudgement extends Judgement {
  readonly openTransactions: number;
  /** Input records that the group has not committed. */
  readonly lag: number;
}

/** Without a fault. */
export function exact(records: number): Judgement {
  return { records, lost: [], duplicated: [], invented: [], outOfOrder: [] };
}

export function exactInKafka(records: number): KafkaJudgement {
  return { ...exact(records), openTransactions: 0, lag: 0 };
}

/** The output as a read-committed reader sees it, against the input. */
export async function judgeKafka(
  reader: IndependentReader,
  { input, output, group }: { readonly input: string; readonly output: string; readonly group: string },
): Promise<KafkaJudgement> {
  const sent = (await reader.read(input)).records.map(valueOf);
  const { records, partitions } = await reader.read(output);
  const held = partitions.filter(({ lastStable, highWatermark }) => lastStable < highWatermark).length;
  const open = (await reader.openTransactions(output)).length;
  return {
    ...compare(timesOf(sent), records.map(valueOf)),
    openTransactions: Math.max(held, open),
    lag: Number(await lagOf(reader, group, input)),
  };
}

/** `once`: the table should have each id once, however often it was sent; else as often as it was sent. */
export async function judgePostgres(
  reader: IndependentReader,
  query: <R extends Record<string, unknown>>(text: string) => Promise<R[]>,
  { input, table, once }: { readonly input: string; readonly table: string; readonly once: boolean },
): Promise<Judgement> {
  const times = timesOf((await reader.read(input)).records.map(valueOf));
  if (once) for (const id of times.keys()) times.set(id, 1);
  return compare(times, await query<InputValue & Record<string, unknown>>(`SELECT id, key, n FROM ${table} ORDER BY position`));
}

/** The table for `judgePostgres`. Nothing in it keeps duplicates away. */
export function tableStatement(table: string): string {
  return `CREATE TABLE ${table} (position bigint GENERATED ALWAYS AS IDENTITY, id text NOT NULL, key text NOT NULL, n integer NOT NULL)`;
}

/** Input records that the group has still to commit. A marker at the end of a partition counts as one. */
export async function lagOf(reader: IndependentReader, group: string, topic: string): Promise<bigint> {
  const committed = new Map(
    (await reader.groupOffsets(group)).filter((row) => row.topic === topic).map(({ partition, offset }) => [partition, offset]),
  );
  let lag = 0n;
  for (const { partition, logStart, highWatermark } of await reader.ends(topic))
    lag += highWatermark - (committed.get(partition) ?? logStart);
  return lag;
}

/** Resolves when the group has committed the end of the topic. `check` may throw, such as when a process has died. */
export async function drained(
  reader: IndependentReader,
  { group, topic }: { readonly group: string; readonly topic: string },
  { deadlineMs = 90_000, check }: { readonly deadlineMs?: number; readonly check?: () => void } = {},
): Promise<void> {
  const deadline = performance.now() + deadlineMs;
  for (;;) {
    check?.();
    const lag = await lagOf(reader, group, topic);
    if (lag === 0n) return;
    if (performance.now() > deadline) throw new Error(`'${group}' is still ${lag} records behind in ${topic} after ${deadlineMs} ms`);
    await sleep(100);
  }
}

function compare(sent: ReadonlyMap<string, number>, found: readonly InputValue[]): Judgement {
  const seen = new Map<string, number>();
  const last = new Map<string, number>();
  const duplicated: string[] = [];
  const invented: string[] = [];
  const outOfOrder: string[] = [];
  for (const { id, key, n } of found) {
    const times = (seen.get(id) ?? 0) + 1;
    seen.set(id, times);
    const wanted = sent.get(id);
    if (wanted === undefined) invented.push(id);
    else if (times > wanted) duplicated.push(id);
    if (n < (last.get(key) ?? -1)) outOfOrder.push(id);
    else last.set(key, n);
  }
  const lost = [...sent].flatMap(([id, wanted]) => Array<string>(Math.max(0, wanted - (seen.get(id) ?? 0))).fill(id));
  return { records: found.length, lost, duplicated, invented, outOfOrder };
}

function timesOf(values: readonly InputValue[]): Map<string, number> {
  const times = new Map<string, number>();
  for (const { id } of values) times.set(id, (times.get(id) ?? 0) + 1);
  return times;
}

function valueOf({ value }: IndependentRecord): InputValue {
  return JSON.parse(value?.toString('utf8') ?? '') as InputValue;
}
