import type { SinkRecord } from '../port.ts';
import { describeError, sqlstateOf } from './sqlstate.ts';

/** A value that no column can take; found before anything is sent. */
export class RefusedValueError extends Error {
  readonly sqlstate: string | null;

  constructor(message: string, sqlstate: string | null = null) {
    super(message);
    this.sqlstate = sqlstate;
  }
}

/** One record that is at fault by itself, and why. */
export interface Refusal<K, V> {
  readonly record: SinkRecord<K, V>;
  readonly sqlstate: string | null;
  readonly message: string;
}

export function refusal<K, V>(record: SinkRecord<K, V>, error: unknown): Refusal<K, V> {
  const sqlstate = error instanceof RefusedValueError ? error.sqlstate : (sqlstateOf(error) ?? null);
  return { record, sqlstate, message: describeError(error) };
}
