import type { ConsumedRecord } from '../model/record.ts';
import type { Serde } from './serde.ts';
import { REPLACEMENT } from './text.ts';

/** Deserialises the keys and the values of one topic. Both throw what the serdes throw. */
export interface RecordReader {
  key(record: ConsumedRecord): unknown;
  value(record: ConsumedRecord): unknown;
}

/** Reads text straight from the fetched bytes where a serde can take it; nulls, and bytes that may be no UTF-8, always go to its `deserialise`. */
export function recordReader(topic: string, keySerde: Serde<unknown>, valueSerde: Serde<unknown>): RecordReader {
  const keyContext = { topic, part: 'key' } as const;
  const valueContext = { topic, part: 'value' } as const;
  return {
    key:
      keySerde.deserialiseText === undefined
        ? (record) => keySerde.deserialise(record.key, keyContext)
        : (record) => {
            const text = record.keyText();
            if (text === null || text.includes(REPLACEMENT)) return keySerde.deserialise(record.key, keyContext);
            return keySerde.deserialiseText!(text, keyContext);
          },
    value:
      valueSerde.deserialiseText === undefined
        ? (record) => valueSerde.deserialise(record.value, valueContext)
        : (record) => {
            const text = record.valueText();
            if (text === null || text.includes(REPLACEMENT)) return valueSerde.deserialise(record.value, valueContext);
            return valueSerde.deserialiseText!(text, valueContext);
          },
  };
}
