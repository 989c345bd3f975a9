import { ConfigurationError, DeserialisationError, ProcessingError, SerialisationError, TidemarkError } from '../model/errors.ts';
import type { ConsumedRecord } from '../model/record.ts';

/**
 * - `deserialisation`: the source's serde could not read the key or the value.
 * - `processing`: a function of a step threw.
 * - `serialisation`: a serde could not write an output.
 * - `output`: an output cannot be written: larger than its topic allows, a computed topic that does not exist, a partition out of range.
 */
export type RecordFailureKind = 'deserialisation' | 'processing' | 'serialisation' | 'output';

/** One record that could not be processed. None of its outputs is written. */
export interface RecordFailure {
  readonly kind: RecordFailureKind;
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
  /** The step that failed, where it is known; the source for a record that could not be read. */
  readonly node: string | undefined;
  readonly error: Error;
  /** As it was read, with its bytes. */
  readonly record: ConsumedRecord;
}

/**
 * - `fail`: the application stops. What was done before the record is committed, so that a restart begins with this very record.
 * - `skip`: go on as if the record did not exist; counted in `tidemark_skipped_records_total`.
 * - `dead-letter`: write its bytes to the dead letter topic, in the same transaction as everything else, and go on.
 */
export type FailureAction = 'fail' | 'skip' | 'dead-letter';

export const FAILURE_ACTIONS: readonly FailureAction[] = ['fail', 'skip', 'dead-letter'];

/** Synchronous. What it throws is an error of the record too, and stops the application. */
export type FailurePolicy = FailureAction | ((failure: RecordFailure) => FailureAction);

/** What stops an application at a record. */
export class PoisonRecordError extends TidemarkError {
  readonly code = 'POISON_RECORD';
  readonly #failure: RecordFailure;

  constructor(failure: RecordFailure, where: string) {
    const { kind, topic, partition, offset, node, error } = failure;
    super(
      `${where}: the record ${topic}-${partition}@${offset} cannot be processed (${kind}${node === undefined ? '' : `, step '${node}'`}): ` +
        `${error.message}. What was done before it is committed; a restart begins with it. Mend the topology or the data, or set ` +
        `${optionOf(kind)} to 'skip' or 'dead-letter'`,
      { cause: error },
    );
    this.#failure = failure;
  }

  /** Not a property, so that a logger does not write out the record, which may be large or confidential. */
  get failure(): RecordFailure {
    return this.#failure;
  }
}

function optionOf(kind: RecordFailureKind): string {
  return kind === 'deserialisation' ? 'onDeserialisationError' : 'onProcessingError';
}

/** Thrown by the collector for an output that no retry can write. */
export class OutputError extends TidemarkError {
  readonly code = 'OUTPUT';
}

/** `thrown` is what a serde or a step threw while `record` was processed. */
export function recordFailure(record: ConsumedRecord, thrown: unknown, source: string): RecordFailure {
  const error = thrown instanceof Error ? thrown : new Error(String(thrown));
  const { topic, partition, offset } = record;
  return { kind: kindOf(error), topic, partition, offset, node: nodeOf(error, source), error, record };
}

function kindOf(error: Error): RecordFailureKind {
  if (error instanceof DeserialisationError) return 'deserialisation';
  if (error instanceof SerialisationError) return 'serialisation';
  if (error instanceof OutputError) return 'output';
  return 'processing';
}

function nodeOf(error: Error, source: string): string | undefined {
  if (error instanceof ProcessingError) return error.node;
  return error instanceof DeserialisationError ? source : undefined;
}

/** The two options of an application, as one decision. */
export class FailurePolicies {
  readonly #onDeserialisationError: FailurePolicy;
  readonly #onProcessingError: FailurePolicy;

  constructor(onDeserialisationError: FailurePolicy, onProcessingError: FailurePolicy) {
    this.#onDeserialisationError = onDeserialisationError;
    this.#onProcessingError = onProcessingError;
  }

  /** Whether a record may become a dead letter. */
  get mayDeadLetter(): boolean {
    return [this.#onDeserialisationError, this.#onProcessingError].some(
      (policy) => policy === 'dead-letter' || typeof policy === 'function',
    );
  }

  /** Throws what the application's function throws, and ConfigurationError for an answer that is none. */
  decide(failure: RecordFailure): FailureAction {
    const policy = failure.kind === 'deserialisation' ? this.#onDeserialisationError : this.#onProcessingError;
    if (typeof policy === 'string') return policy;
    const action = policy(failure);
    if (FAILURE_ACTIONS.includes(action)) return action;
    throw new ConfigurationError(
      `the function in ${optionOf(failure.kind)} returned ${typeof action === 'string' ? action : typeof action}. Return one of ${FAILURE_ACTIONS.map((name) => `'${name}'`).join(', ')}.`,
    );
  }
}
