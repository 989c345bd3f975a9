import type { RecordContext } from '../model/record.ts';
import type { OutputHeaders } from '../operators/to.ts';
import type { Serde, Serialiser } from '../serde/serde.ts';

/** Taken by every step. */
export interface StepOptions {
  /**
   * The step's name in errors, metrics and `describe`; unique in the topology. Letters, digits, dot, underscore and hyphen. Default: generated
   * as Kafka Streams does, such as `KSTREAM-FILTER-0000000001`.
   */
  readonly name?: string;
}

/** `K` and `V` of a stream whose serdes are not given: bytes as they are. */
export type Raw = Buffer | null;

export interface StreamOptions<K, V> extends StepOptions {
  /** Reads the keys. Default: bytes as they are, `Buffer | null`. */
  readonly key?: Serde<K>;
  /** Reads the values. Default: bytes as they are, `Buffer | null`. */
  readonly value?: Serde<V>;
}

/** Decides over a record. Must not change it. */
export type Predicate<K, V> = (value: V, key: K, context: RecordContext) => boolean;

/** Computes something from a record. Must not change it. */
export type Mapper<K, V, R> = (value: V, key: K, context: RecordContext) => R;

/** The type of a result that must not be a promise. A function that returns one does not compile. */
export type Sync<R> = R extends PromiseLike<unknown> ? 'steps are synchronous: this function must not return a promise' : R;

/** Whether a stream still has a serde for its keys (or values): a step that changes their type drops it. */
export type SerdeState = 'known' | 'unknown';

export interface ToOptions<K, V> extends StepOptions {
  /** Writes the keys. Default: the serde that the stream was read with, unless a step has changed the key. */
  readonly key?: Serialiser<K>;
  /** Writes the values. Default: the serde that the stream was read with, unless a step has changed the value. */
  readonly value?: Serialiser<V>;
  /**
   * The partition for a record, from 0 to `partitionCount - 1`; undefined leaves it to the default. Default: murmur2 of the key's bytes, as the
   * Java client does, and round robin without a key.
   */
  readonly partitioner?: (value: V, key: K, partitionCount: number, context: RecordContext) => number | undefined;
  /**
   * The headers of the output. A list takes the place of those that the record has; an object is added to them, text as UTF-8 (a reader that
   * looks for the last header of a name finds the added one). Default: those that the record has.
   */
  readonly headers?: (value: V, key: K, context: RecordContext) => OutputHeaders;
}

/** The options of `to`, with a serde that must be given where a step has dropped the one that the stream had. */
export type ToArguments<K, V, KS extends SerdeState, VS extends SerdeState> = [KS, VS] extends ['known', 'known']
  ? [options?: ToOptions<K, V>]
  : [
      options: ToOptions<K, V> &
        ([KS] extends ['known'] ? unknown : KeySerdeIsNeeded<K>) &
        ([VS] extends ['known'] ? unknown : ValueSerdeIsNeeded<V>),
    ];

/** A step before this one has changed the key, so that the serde which it was read with may not fit any more. */
export interface KeySerdeIsNeeded<K> {
  readonly key: Serialiser<K>;
}

/** A step before this one has changed the value, so that the serde which it was read with may not fit any more. */
export interface ValueSerdeIsNeeded<V> {
  readonly value: Serialiser<V>;
}
