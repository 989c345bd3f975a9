/** Base of every error that Tidemark throws on purpose. `code` is stable; the message says what, where and what to do. */
export abstract class TidemarkError extends Error {
  abstract readonly code: string;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/*
 * The five errors that a Kafka adapter may throw. The type is the remedy: the worker has one exhaustive switch over them.
 */

/** It may work when tried again: abort what is open, back off, seek back, try again. */
export class RetriableError extends TidemarkError {
  readonly code = 'RETRIABLE';
}

/** Another producer has taken over this transactional id: stop producing, drop everything uncommitted, initialise anew. */
export class FencedError extends TidemarkError {
  readonly code = 'FENCED';
}

/** This member's generation is over: abort, drop the partitions, rejoin the group. */
export class StaleGenerationError extends TidemarkError {
  readonly code = 'STALE_GENERATION';
}

/** EndTxn may or may not have taken effect: take a new producer epoch and read the committed offset, which is the truth. */
export class OutcomeUnknownError extends TidemarkError {
  readonly code = 'OUTCOME_UNKNOWN';
}

/** No retry mends it (authorisation, a missing topic, a corrupt log, wrong configuration): stop, and say why. */
export class FatalError extends TidemarkError {
  readonly code: 'FATAL' | 'RECORD_TOO_LARGE' = 'FATAL';
}

export type KafkaError = RetriableError | FencedError | StaleGenerationError | OutcomeUnknownError | FatalError;

/** One record does not fit into `max.message.bytes` of its topic. Thrown before anything is sent. */
export class RecordTooLargeError extends FatalError {
  override readonly code = 'RECORD_TOO_LARGE';
}

/** An option is missing, contradictory or out of range. */
export class ConfigurationError extends TidemarkError {
  readonly code = 'CONFIGURATION';
}

/** A topology cannot be built or run as it is written. */
export class TopologyError extends TidemarkError {
  readonly code = 'TOPOLOGY';
}

/** A key or a value cannot be read by the serde of its source. */
export class DeserialisationError extends TidemarkError {
  readonly code = 'DESERIALISATION';
}

/** A key or a value cannot be written by the serde of its sink. */
export class SerialisationError extends TidemarkError {
  readonly code = 'SERIALISATION';
}

/** The function of a step threw. `node` is the step's name in the topology, `cause` what it threw. */
export class ProcessingError extends TidemarkError {
  readonly code = 'PROCESSING';
  readonly node: string;

  constructor(node: string, cause: unknown) {
    super(`step '${node}' threw: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
    this.node = node;
  }
}

/*
 * The errors of a sink. As with Kafka, the type is the remedy.
 */

/** The target is down or busy, the transaction was rolled back: the same batch may be written again. */
export class SinkRetriableError extends TidemarkError {
  readonly code = 'SINK_RETRIABLE';
}

/** Another owner has taken the partition, or this one is ahead of what is applied: claim again and re-read from the position found. */
export class SinkFencedError extends TidemarkError {
  readonly code = 'SINK_FENCED';
}

/** No retry mends it: a missing table, no permission, a column that does not exist. */
export class SinkFatalError extends TidemarkError {
  readonly code = 'SINK_FATAL';
}
