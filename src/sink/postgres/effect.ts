import type { SinkRecord } from '../port.ts';
import type { Refusal } from './refusal.ts';
import type { Session } from './session.ts';

/** What was set in motion for some records; its statements are sent, but not answered yet. */
export interface EffectRun<K, V> {
  /** Records that are at fault by themselves and were left out. Known before any answer. */
  readonly refused: readonly Refusal<K, V>[];
  /** Settles with the last answer. Results stand at the index of their record; undefined: none of them has one. */
  readonly done: Promise<readonly unknown[] | undefined>;
}

/** What is done with fresh records, inside the transaction. */
export interface Effect<K, V> {
  /** Whether COMMIT may follow before the statements are answered: it may if nothing else decides on their answers. */
  readonly pipelined: boolean;
  /** Checks that it can work on this database, as far as that can be known. Throws ConfigurationError, SinkFatalError, or a server's error. */
  verify(session: Session): Promise<void>;
  run(session: Session, records: readonly SinkRecord<K, V>[]): EffectRun<K, V>;
}
