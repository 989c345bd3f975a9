import type { SinkRecord } from '../port.ts';
import { idempotencyKeyText } from './idempotency-key-text.ts';

/** The records of a batch by their idempotency key: the first one of a key stands for all of them, unless it is refused. */
export class KeyGroups<K, V> {
  readonly #groups = new Map<string, SinkRecord<K, V>[]>();

  constructor(records: readonly SinkRecord<K, V>[]) {
    for (const record of records) {
      const key = this.keyOf(record);
      const group = this.#groups.get(key);
      if (group === undefined) this.#groups.set(key, [record]);
      else group.push(record);
    }
  }

  keys(): readonly string[] {
    return [...this.#groups.keys()];
  }

  keyOf(record: SinkRecord<K, V>): string {
    return idempotencyKeyText(record.idempotencyKey);
  }

  /** The first record of each of these keys, in offset order. */
  first(keys: ReadonlySet<string>): readonly SinkRecord<K, V>[] {
    const records: SinkRecord<K, V>[] = [];
    for (const [key, group] of this.#groups) {
      const record = group[0];
      if (record !== undefined && keys.has(key)) records.push(record);
    }
    return records;
  }

  /** The record with the same key that stands in for a refused one. */
  next(refused: SinkRecord<K, V>): SinkRecord<K, V> | undefined {
    const group = this.#groups.get(this.keyOf(refused));
    group?.shift();
    return group?.[0];
  }

  /** The records behind the one that was applied, and all of a key that was there already. */
  duplicates(applied: ReadonlySet<SinkRecord<K, V>>): readonly SinkRecord<K, V>[] {
    return [...this.#groups.values()].flat().filter((record) => !applied.has(record));
  }
}
