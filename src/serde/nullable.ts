import type { Serde } from './serde.ts';

const made = new WeakMap<object, Serde<unknown>>();

/**
 * Lets null through in both directions: tombstones, and records without a key. Everything else is left to the given serde.
 *
 * ```ts run
 * builder.stream('profiles', { key: nullable(string()), value: nullable(json<Flight>()) }).filter((profile) => profile !== null);
 * ```
 */
export function nullable<T>(serde: Serde<T>): Serde<T | null> {
  const before = made.get(serde);
  if (before !== undefined) return before as Serde<T | null>;
  const wrapped: Serde<T | null> = Object.freeze({
    name: `nullable(${serde.name})`,
    serialise: (value: T | null, context) => (value === null ? null : serde.serialise(value, context)),
    deserialise: (payload: Buffer | null, context) => (payload === null ? null : serde.deserialise(payload, context)),
    ...(serde.deserialiseText === undefined ? {} : { deserialiseText: serde.deserialiseText.bind(serde) }),
  } satisfies Serde<T | null>);
  // The same serde wrapped twice is the same serde, so that two streams of one topic are known to agree.
  made.set(serde, wrapped);
  return wrapped;
}
