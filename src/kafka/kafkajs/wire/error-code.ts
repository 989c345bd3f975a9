import {
  FatalError,
  FencedError,
  RecordTooLargeError,
  RetriableError,
  StaleGenerationError,
  type KafkaError,
} from '../../../model/errors.ts';

/** Kafka's error codes by name (`org.apache.kafka.common.protocol.Errors`, Kafka 4.1). */
export const ErrorCode = {
  UNKNOWN_SERVER_ERROR: -1,
  NONE: 0,
  OFFSET_OUT_OF_RANGE: 1,
  CORRUPT_MESSAGE: 2,
  UNKNOWN_TOPIC_OR_PARTITION: 3,
  INVALID_FETCH_SIZE: 4,
  LEADER_NOT_AVAILABLE: 5,
  NOT_LEADER_OR_FOLLOWER: 6,
  REQUEST_TIMED_OUT: 7,
  BROKER_NOT_AVAILABLE: 8,
  REPLICA_NOT_AVAILABLE: 9,
  MESSAGE_TOO_LARGE: 10,
  STALE_CONTROLLER_EPOCH: 11,
  OFFSET_METADATA_TOO_LARGE: 12,
  NETWORK_EXCEPTION: 13,
  COORDINATOR_LOAD_IN_PROGRESS: 14,
  COORDINATOR_NOT_AVAILABLE: 15,
  NOT_COORDINATOR: 16,
  INVALID_TOPIC_EXCEPTION: 17,
  RECORD_LIST_TOO_LARGE: 18,
  NOT_ENOUGH_REPLICAS: 19,
  NOT_ENOUGH_REPLICAS_AFTER_APPEND: 20,
  INVALID_REQUIRED_ACKS: 21,
  ILLEGAL_GENERATION: 22,
  INCONSISTENT_GROUP_PROTOCOL: 23,
  INVALID_GROUP_ID: 24,
  UNKNOWN_MEMBER_ID: 25,
  INVALID_SESSION_TIMEOUT: 26,
  REBALANCE_IN_PROGRESS: 27,
  INVALID_COMMIT_OFFSET_SIZE: 28,
  TOPIC_AUTHORIZATION_FAILED: 29,
  GROUP_AUTHORIZATION_FAILED: 30,
  CLUSTER_AUTHORIZATION_FAILED: 31,
  INVALID_TIMESTAMP: 32,
  UNSUPPORTED_SASL_MECHANISM: 33,
  ILLEGAL_SASL_STATE: 34,
  UNSUPPORTED_VERSION: 35,
  TOPIC_ALREADY_EXISTS: 36,
  INVALID_PARTITIONS: 37,
  INVALID_REPLICATION_FACTOR: 38,
  INVALID_REPLICA_ASSIGNMENT: 39,
  INVALID_CONFIG: 40,
  NOT_CONTROLLER: 41,
  INVALID_REQUEST: 42,
  UNSUPPORTED_FOR_MESSAGE_FORMAT: 43,
  POLICY_VIOLATION: 44,
  OUT_OF_ORDER_SEQUENCE_NUMBER: 45,
  DUPLICATE_SEQUENCE_NUMBER: 46,
  INVALID_PRODUCER_EPOCH: 47,
  INVALID_TXN_STATE: 48,
  INVALID_PRODUCER_ID_MAPPING: 49,
  INVALID_TRANSACTION_TIMEOUT: 50,
  CONCURRENT_TRANSACTIONS: 51,
  TRANSACTION_COORDINATOR_FENCED: 52,
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 53,
  SECURITY_DISABLED: 54,
  OPERATION_NOT_ATTEMPTED: 55,
  KAFKA_STORAGE_ERROR: 56,
  LOG_DIR_NOT_FOUND: 57,
  SASL_AUTHENTICATION_FAILED: 58,
  UNKNOWN_PRODUCER_ID: 59,
  REASSIGNMENT_IN_PROGRESS: 60,
  DELEGATION_TOKEN_AUTH_DISABLED: 61,
  DELEGATION_TOKEN_NOT_FOUND: 62,
  DELEGATION_TOKEN_OWNER_MISMATCH: 63,
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: 64,
  DELEGATION_TOKEN_AUTHORIZATION_FAILED: 65,
  DELEGATION_TOKEN_EXPIRED: 66,
  INVALID_PRINCIPAL_TYPE: 67,
  NON_EMPTY_GROUP: 68,
  GROUP_ID_NOT_FOUND: 69,
  FETCH_SESSION_ID_NOT_FOUND: 70,
  INVALID_FETCH_SESSION_EPOCH: 71,
  LISTENER_NOT_FOUND: 72,
  TOPIC_DELETION_DISABLED: 73,
  FENCED_LEADER_EPOCH: 74,
  UNKNOWN_LEADER_EPOCH: 75,
  UNSUPPORTED_COMPRESSION_TYPE: 76,
  STALE_BROKER_EPOCH: 77,
  OFFSET_NOT_AVAILABLE: 78,
  MEMBER_ID_REQUIRED: 79,
  PREFERRED_LEADER_NOT_AVAILABLE: 80,
  GROUP_MAX_SIZE_REACHED: 81,
  FENCED_INSTANCE_ID: 82,
  ELIGIBLE_LEADERS_NOT_AVAILABLE: 83,
  ELECTION_NOT_NEEDED: 84,
  NO_REASSIGNMENT_IN_PROGRESS: 85,
  GROUP_SUBSCRIBED_TO_TOPIC: 86,
  INVALID_RECORD: 87,
  UNSTABLE_OFFSET_COMMIT: 88,
  THROTTLING_QUOTA_EXCEEDED: 89,
  PRODUCER_FENCED: 90,
  RESOURCE_NOT_FOUND: 91,
  DUPLICATE_RESOURCE: 92,
  UNACCEPTABLE_CREDENTIAL: 93,
  INCONSISTENT_VOTER_SET: 94,
  INVALID_UPDATE_VERSION: 95,
  FEATURE_UPDATE_FAILED: 96,
  PRINCIPAL_DESERIALIZATION_FAILURE: 97,
  SNAPSHOT_NOT_FOUND: 98,
  POSITION_OUT_OF_RANGE: 99,
  UNKNOWN_TOPIC_ID: 100,
  DUPLICATE_BROKER_REGISTRATION: 101,
  BROKER_ID_NOT_REGISTERED: 102,
  INCONSISTENT_TOPIC_ID: 103,
  INCONSISTENT_CLUSTER_ID: 104,
  TRANSACTIONAL_ID_NOT_FOUND: 105,
  FETCH_SESSION_TOPIC_ID_ERROR: 106,
  INELIGIBLE_REPLICA: 107,
  NEW_LEADER_ELECTED: 108,
  OFFSET_MOVED_TO_TIERED_STORAGE: 109,
  FENCED_MEMBER_EPOCH: 110,
  UNRELEASED_INSTANCE_ID: 111,
  UNSUPPORTED_ASSIGNOR: 112,
  STALE_MEMBER_EPOCH: 113,
  MISMATCHED_ENDPOINT_TYPE: 114,
  UNSUPPORTED_ENDPOINT_TYPE: 115,
  UNKNOWN_CONTROLLER_ID: 116,
  UNKNOWN_SUBSCRIPTION_ID: 117,
  TELEMETRY_TOO_LARGE: 118,
  INVALID_REGISTRATION: 119,
  TRANSACTION_ABORTABLE: 120,
  INVALID_RECORD_STATE: 121,
  SHARE_SESSION_NOT_FOUND: 122,
  INVALID_SHARE_SESSION_EPOCH: 123,
  FENCED_STATE_EPOCH: 124,
  INVALID_VOTER_KEY: 125,
  DUPLICATE_VOTER: 126,
  VOTER_NOT_FOUND: 127,
  INVALID_REGULAR_EXPRESSION: 128,
  REBOOTSTRAP_REQUIRED: 129,
  STREAMS_INVALID_TOPOLOGY: 130,
  STREAMS_INVALID_TOPOLOGY_EPOCH: 131,
  STREAMS_TOPOLOGY_FENCED: 132,
  SHARE_SESSION_LIMIT_REACHED: 133,
} as const;

const NAMES: ReadonlyMap<number, string> = new Map(Object.entries(ErrorCode).map(([name, code]) => [code, name]));

const RETRIABLE: ReadonlySet<number> = new Set<number>([
  ErrorCode.CORRUPT_MESSAGE,
  ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
  ErrorCode.LEADER_NOT_AVAILABLE,
  ErrorCode.NOT_LEADER_OR_FOLLOWER,
  ErrorCode.REQUEST_TIMED_OUT,
  ErrorCode.REPLICA_NOT_AVAILABLE,
  ErrorCode.NETWORK_EXCEPTION,
  ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
  ErrorCode.COORDINATOR_NOT_AVAILABLE,
  ErrorCode.NOT_COORDINATOR,
  ErrorCode.NOT_ENOUGH_REPLICAS,
  ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
  ErrorCode.NOT_CONTROLLER,
  ErrorCode.CONCURRENT_TRANSACTIONS,
  ErrorCode.KAFKA_STORAGE_ERROR,
  ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
  ErrorCode.INVALID_FETCH_SESSION_EPOCH,
  ErrorCode.LISTENER_NOT_FOUND,
  ErrorCode.FENCED_LEADER_EPOCH,
  ErrorCode.UNKNOWN_LEADER_EPOCH,
  ErrorCode.OFFSET_NOT_AVAILABLE,
  ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
  ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
  ErrorCode.ELECTION_NOT_NEEDED,
  ErrorCode.UNSTABLE_OFFSET_COMMIT,
  ErrorCode.THROTTLING_QUOTA_EXCEEDED,
  ErrorCode.UNKNOWN_TOPIC_ID,
  ErrorCode.INCONSISTENT_TOPIC_ID,
  ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
  ErrorCode.SHARE_SESSION_NOT_FOUND,
  ErrorCode.INVALID_SHARE_SESSION_EPOCH,
  ErrorCode.SHARE_SESSION_LIMIT_REACHED,
]);

/** What it takes to name the place of an error. */
export interface ErrorPlace {
  /** The api as the protocol guide spells it. */
  readonly api: string;
  readonly topic?: string;
  readonly partition?: number;
  readonly group?: string;
  readonly transactionalId?: string;
  readonly groupInstanceId?: string | null;
  /** What the broker said beside the code. */
  readonly detail?: string | null;
}

export function errorName(code: number): string {
  return NAMES.get(code) ?? `error code ${code}, which this client does not know`;
}

/** Whether Kafka itself declares that the same request may work later. */
export function isRetriable(code: number): boolean {
  return RETRIABLE.has(code);
}

/**
 * The error whose type is the remedy for this code, where the api has no special case. OutcomeUnknownError is never among them: only the
 * caller of EndTxn knows.
 */
export function toKafkaError(code: number, place: ErrorPlace): KafkaError {
  const message = `${describe(code, place)}${advice(code, place)}`;
  switch (code) {
    case ErrorCode.INVALID_PRODUCER_EPOCH:
    case ErrorCode.PRODUCER_FENCED:
    // The broker has forgotten the transactional id; going on under the old producer id could let a zombie go on too (KAFKA-18019).
    case ErrorCode.INVALID_PRODUCER_ID_MAPPING:
      return new FencedError(message);
    case ErrorCode.ILLEGAL_GENERATION:
    case ErrorCode.UNKNOWN_MEMBER_ID:
    case ErrorCode.REBALANCE_IN_PROGRESS:
    case ErrorCode.FENCED_MEMBER_EPOCH:
    case ErrorCode.STALE_MEMBER_EPOCH:
      return new StaleGenerationError(message);
    case ErrorCode.MESSAGE_TOO_LARGE:
    case ErrorCode.RECORD_LIST_TOO_LARGE:
      return new RecordTooLargeError(message);
    // Not retriable as such for Kafka, but a new attempt after an abort, or after a new producer id, works.
    case ErrorCode.TRANSACTION_ABORTABLE:
    case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
    case ErrorCode.UNKNOWN_PRODUCER_ID:
    case ErrorCode.BROKER_NOT_AVAILABLE:
      return new RetriableError(message);
    default:
      return isRetriable(code) ? new RetriableError(message) : new FatalError(message);
  }
}

function describe(code: number, place: ErrorPlace): string {
  const where: string[] = [];
  if (place.topic !== undefined) where.push(place.partition === undefined ? `topic '${place.topic}'` : `${place.topic}/${place.partition}`);
  if (place.group !== undefined) where.push(`group '${place.group}'`);
  if (place.transactionalId !== undefined) where.push(`transactional id '${place.transactionalId}'`);
  if (typeof place.groupInstanceId === 'string') where.push(`group.instance.id '${place.groupInstanceId}'`);
  const detail = place.detail === undefined || place.detail === null || place.detail === '' ? '' : ` (${place.detail})`;
  return `${place.api}${where.length > 0 ? ` of ${where.join(', ')}` : ''} answered ${errorName(code)}${detail}`;
}

function advice(code: number, place: ErrorPlace): string {
  switch (code) {
    case ErrorCode.INVALID_PRODUCER_EPOCH:
    case ErrorCode.PRODUCER_FENCED:
      return ': another producer has taken over this transactional id, or the transaction timed out. Initialise anew; if it happens again and again, two processes share one id.';
    case ErrorCode.INVALID_PRODUCER_ID_MAPPING:
      return ': the broker has forgotten this transactional id (transactional.id.expiration.ms). Initialise anew.';
    case ErrorCode.ILLEGAL_GENERATION:
    case ErrorCode.UNKNOWN_MEMBER_ID:
    case ErrorCode.REBALANCE_IN_PROGRESS:
    case ErrorCode.FENCED_MEMBER_EPOCH:
    case ErrorCode.STALE_MEMBER_EPOCH:
      return ": this member's generation is over. Rejoin the group.";
    case ErrorCode.FENCED_INSTANCE_ID:
      return ': another member has joined with the same group.instance.id. Give each process an instance id of its own.';
    case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
      return ': it does not exist, or not yet on this broker. Create the topic, or check its name.';
    case ErrorCode.UNKNOWN_TOPIC_ID:
    case ErrorCode.INCONSISTENT_TOPIC_ID:
      return ': the topic was deleted or created anew.';
    case ErrorCode.NOT_LEADER_OR_FOLLOWER:
    case ErrorCode.LEADER_NOT_AVAILABLE:
    case ErrorCode.FENCED_LEADER_EPOCH:
    case ErrorCode.UNKNOWN_LEADER_EPOCH:
      return ': the leader is moving. Refresh the metadata and try again.';
    case ErrorCode.NOT_COORDINATOR:
    case ErrorCode.COORDINATOR_NOT_AVAILABLE:
    case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
      return ': the coordinator is moving or loading. Look it up again and try again.';
    case ErrorCode.CONCURRENT_TRANSACTIONS:
      return ': the transaction before is still being completed. Try again in a few milliseconds.';
    case ErrorCode.UNSTABLE_OFFSET_COMMIT:
      return ': a transaction that commits these offsets is still open. Try again when it has ended.';
    case ErrorCode.MESSAGE_TOO_LARGE:
    case ErrorCode.RECORD_LIST_TOO_LARGE:
      return ': the batch is larger than max.message.bytes of the topic.';
    case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
    case ErrorCode.GROUP_AUTHORIZATION_FAILED:
    case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
    case ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
      return `: the user may not do this. Grant it the operations that ${place.api} needs.`;
    case ErrorCode.INVALID_TRANSACTION_TIMEOUT:
      return ": the transaction timeout is above the broker's transaction.max.timeout.ms.";
    case ErrorCode.INVALID_SESSION_TIMEOUT:
      return ": the session timeout is outside the broker's group.min.session.timeout.ms and group.max.session.timeout.ms.";
    case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
      return ': the other members of the group use another assignor or another kind of client. Use one application per group.';
    case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
    case ErrorCode.UNKNOWN_PRODUCER_ID:
      return ': the broker lacks a batch before this one. Abort and initialise anew.';
    case ErrorCode.TRANSACTION_ABORTABLE:
      return ': abort the transaction and do it again.';
    case ErrorCode.OFFSET_OUT_OF_RANGE:
      return ': the position lies outside the log.';
    case ErrorCode.NOT_ENOUGH_REPLICAS:
    case ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
      return ': fewer replicas are in sync than min.insync.replicas asks for.';
    default:
      return '.';
  }
}
