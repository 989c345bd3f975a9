import { describe, expect, it } from 'vitest';
import { DeserialisationError } from '../../../src/model/errors.ts';
import { json } from '../../../src/serde/json.ts';
import { nullable } from '../../../src/serde/nullable.ts';
import { number } from '../../../src/serde/number.ts';
import { recordReader } from '../../../src/serde/record-reader.ts';
import type { Serde } from '../../../src/serde/serde.ts';
import { string } from '../../../src/serde/string.ts';
import type { ConsumedRecord } from '../../../src/model/record.ts';
import { NO_HEADERS } from '../../../src/model/headers.ts';

const CONTEXT = { topic: 't', part: 'value' } as const;

function record(value: Buffer | null): ConsumedRecord {
  return {
    topic: 't',
    partition: 0,
    offset: 0n,
    timestamp: 0,
    headers: NO_HEADERS,
    key: value,
    value,
    keyText: () => value?.toString('utf8') ?? null,
    valueText: () => value?.toString('utf8') ?? null,
  };
}

/** What came of it, to compare one way with the other. */
function outcome(read: () => unknown): unknown {
  try {
    return { read: read() };
  } catch (error) {
    return { refused: error instanceof DeserialisationError ? error.message : `${String(error)}, which is no DeserialisationError` };
  }
}

const serdes: readonly Serde<unknown>[] = [
  string(),
  json(),
  json({
    validate: (value) => {
      if (typeof value !== 'object') throw new TypeError('an object is needed');
      return value;
    },
  }),
  number(),
  nullable(string()),
  nullable(json()),
  nullable(number()),
] as Serde<unknown>[];

const payloads: readonly (Buffer | null)[] = [
  null,
  Buffer.alloc(0),
  Buffer.from('{"a":"ä€😀"}'),
  Buffer.from('{"a":"\uFFFD"}'),
  Buffer.from('\uFFFD'),
  Buffer.from('17'),
  Buffer.from('no JSON'),
  Buffer.from([0x22, 0xff, 0x22]),
  Buffer.from([0xe2, 0x82]),
  Buffer.from([0xef, 0xbb, 0xbf, 0x31]),
];

describe('recordReader', () => {
  it.each(serdes.map((serde, i) => [`${i} ${serde.name}`, serde] as const))('%s: text and bytes give the same', (_, serde) => {
    const reader = recordReader('t', serde, serde);
    for (const payload of payloads) {
      const byBytes = outcome(() => serde.deserialise(payload, CONTEXT));
      expect(outcome(() => reader.key(record(payload)))).toEqual(byBytes);
      expect(outcome(() => reader.value(record(payload)))).toEqual(byBytes);
    }
  });

  it('asks for text where the serde takes it, and for bytes where it does not', () => {
    const asked: string[] = [];
    const spy: ConsumedRecord = {
      ...record(null),
      get key() {
        asked.push('key');
        return Buffer.from('1');
      },
      get value() {
        asked.push('value');
        return Buffer.from('1');
      },
      keyText: () => {
        asked.push('keyText');
        return '1';
      },
      valueText: () => {
        asked.push('valueText');
        return '1';
      },
    };
    const reader = recordReader('t', string(), number());
    outcome(() => reader.key(spy));
    outcome(() => reader.value(spy));
    expect(asked).toEqual(['keyText', 'value']);
  });

  it('tells a serde of its own which topic and which part', () => {
    const seen: unknown[] = [];
    const own: Serde<unknown> = {
      name: 'own',
      serialise: () => '',
      deserialise: () => undefined,
      deserialiseText: (text, context) => seen.push(text, context),
    };
    const reader = recordReader('t', own, own);
    reader.key(record(Buffer.from('a')));
    reader.value(record(Buffer.from('b')));
    expect(seen).toEqual(['a', { topic: 't', part: 'key' }, 'b', { topic: 't', part: 'value' }]);
  });
});
