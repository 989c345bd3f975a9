import { FatalError, FencedError, type KafkaError, OutcomeUnknownError, RetriableError, StaleGenerationError } from '../model/errors.ts';

/** Where in the work of a worker an error came up. */
export type WorkStep =
  /** The group consumer's poll. */
  | 'poll'
  /** Taking a producer id, or a new epoch of it. */
  | 'init'
  /** Reading committed offsets and the bounds of logs, for partitions that are about to start. */
  | 'read-offsets'
  /** Learning about a computed topic. */
  | 'load-topic'
  /** Handing records to the producer, and waiting for room in it. */
  | 'process'
  | 'flush'
  /** Adding the offsets to the transaction. */
  | 'send-offsets'
  | 'end-transaction'
  | 'abort'
  /** Committing offsets outside of a transaction. */
  | 'commit-offsets';

export type Remedy =
  /** Nothing was done that would have to be undone: wait a little, and do the same again. */
  | 'try-again'
  /** Drop what is not committed, go back to the positions that are, wait a little, and go on. */
  | 'roll-back'
  /** Take a new producer epoch, which ends whatever is open, and then read the committed offsets: they are the truth. */
  | 'take-new-epoch'
  /** Drop what is not committed and all partitions, and wait for the next assignment. */
  | 'rejoin'
  /** Nothing helps: the application fails with this error. */
  | 'stop';

/**
 * The remedy for an error, decided in this one place. What is not an error of the Kafka port (a fault in a serde's or a step's
 * surroundings, or in the engine itself) stops the application: going on after it would be guessing.
 */
export function remedyFor(error: unknown, step: WorkStep): Remedy {
  if (!isKafkaError(error)) return 'stop';
  switch (error.code) {
    case 'RETRIABLE':
      return remedyForRetriable(step);
    case 'FENCED':
      // The group knows nothing of producers: there it means that another process has our group.instance.id.
      return step === 'poll' || step === 'read-offsets' || step === 'commit-offsets' ? 'rejoin' : 'take-new-epoch';
    case 'STALE_GENERATION':
      // The end of a transaction is no matter of the group; should it say so, its outcome is unknown.
      return step === 'end-transaction' || step === 'abort' ? 'take-new-epoch' : 'rejoin';
    case 'OUTCOME_UNKNOWN':
      return 'take-new-epoch';
    case 'FATAL':
    case 'RECORD_TOO_LARGE':
      return 'stop';
  }
}

function remedyForRetriable(step: WorkStep): Remedy {
  switch (step) {
    case 'poll':
    case 'init':
    case 'read-offsets':
    case 'commit-offsets':
      return 'try-again';
    case 'load-topic':
    case 'process':
    case 'flush':
    case 'send-offsets':
      return 'roll-back';
    case 'end-transaction':
    case 'abort':
      return 'take-new-epoch';
  }
}

function isKafkaError(error: unknown): error is KafkaError {
  return (
    error instanceof RetriableError ||
    error instanceof FencedError ||
    error instanceof StaleGenerationError ||
    error instanceof OutcomeUnknownError ||
    error instanceof FatalError
  );
}

/** For metrics and logs. */
export function errorCode(error: unknown): string {
  if (error instanceof Error) {
    const { code } = error as { code?: unknown };
    return typeof code === 'string' ? code : error.name;
  }
  return 'UNKNOWN';
}
