import { OutcomeUnknownError, RetriableError, StaleGenerationError, type TidemarkError } from '../../model/errors.ts';
import type { TopicPartition } from '../../model/topic-partition.ts';
import type { GroupMetadata, OffsetToCommit } from '../port.ts';
import { concurrentTransactionsBackOff, movingBackOff } from './back-off.ts';
import type { TransactionVersion } from './config.ts';
import type { ClusterConnection } from './connection.ts';
import { ConnectionLostError } from './connection-error.ts';
import { addOffsetsToTxnExchange } from './wire/add-offsets-to-txn.ts';
import { addPartitionsToTxnExchange } from './wire/add-partitions-to-txn.ts';
import { endTxnExchange } from './wire/end-txn.ts';
import { ErrorCode, errorName, toKafkaError } from './wire/error-code.ts';
import type { Exchange } from './wire/exchange.ts';
import { finalizedFeaturesExchange } from './wire/finalized-features.ts';
import type { CoordinatorType } from './wire/find-coordinator.ts';
import { initProducerIdExchange } from './wire/init-producer-id.ts';
import type { ProducerIdentity } from './wire/producer-identity.ts';
import { txnOffsetCommitExchange } from './wire/txn-offset-commit.ts';

export interface TransactionCoordinatorOptions {
  readonly transactionalId: string;
  readonly transactionTimeoutMs: number;
  readonly requestTimeoutMs: number;
}

type CoordinatorConnection = Pick<ClusterConnection, 'send' | 'sendToAny' | 'coordinator' | 'forgetCoordinator' | 'closed'>;

interface Verdict {
  readonly errorCode: number;
  /** Where the error is one of a partition. */
  readonly topic?: string;
  readonly partition?: number;
}

/** One request in the making, with all that its repetitions need to know. */
interface Question<T> {
  readonly type: CoordinatorType;
  readonly key: string;
  readonly exchange: Exchange<T>;
  /** What the answer says; error code 0 for success. */
  verdict(answer: T): Verdict;
  readonly onSent?: () => void;
  /** Codes that are answered by asking again although others throw them. */
  readonly patience?: readonly number[];
  /** The answer is lost: the request may have been executed, or may be still. Called before it is repeated; what it throws ends the repetition. */
  onLost?(error: ConnectionLostError): void;
  /** The coordinator itself does not know whether its successor will find the request executed. It is asked again. */
  onDoubt?(): void;
}

/**
 * Asks the coordinators of a transaction, and asks again while they are moving, loading, or still completing the transaction before, until the
 * longest time that a transaction can be open has passed.
 *
 * Which requests may be repeated after their answer was lost is the heart of it: each of them may still be on its way, and take effect late.
 * Whoever calls learns of it by `onLost`, and must not begin another transaction under the same epoch.
 */
export class TransactionCoordinator {
  readonly #connection: CoordinatorConnection;
  readonly #options: TransactionCoordinatorOptions;
  /** Counts initialisations: what was asked before the last one is of no interest. */
  #round = 0;

  constructor(connection: CoordinatorConnection, options: TransactionCoordinatorOptions) {
    this.#connection = connection;
    this.#options = options;
  }

  /** The protocol that the cluster has agreed on, up to `newest`. */
  async transactionVersion(newest: TransactionVersion): Promise<TransactionVersion> {
    if (newest === 1) return 1;
    const { levels } = await this.#connection.sendToAny(finalizedFeaturesExchange(), this.#options.requestTimeoutMs);
    return (levels.get('transaction.version') ?? 0) >= 2 ? 2 : 1;
  }

  /**
   * Ends whatever is open under this id and takes a new epoch. Repeating it is safe: each execution raises the epoch, and a late one can only fence
   * this producer, which then says so.
   */
  async initProducerId(): Promise<ProducerIdentity> {
    this.#round++;
    const { transactionalId, transactionTimeoutMs } = this.#options;
    const { producerId, producerEpoch } = await this.#ask({
      type: 'transaction',
      key: transactionalId,
      exchange: initProducerIdExchange(transactionalId, transactionTimeoutMs),
      verdict: (answer) => answer,
    });
    return { producerId, producerEpoch };
  }

  /** Repeating it is safe as long as the transaction is open; a late one would open another transaction, which `onLost` is to prevent. */
  async addPartitions(identity: ProducerIdentity, partitions: readonly TopicPartition[], onLost: () => void): Promise<void> {
    const { transactionalId } = this.#options;
    await this.#ask({
      type: 'transaction',
      key: transactionalId,
      exchange: addPartitionsToTxnExchange(transactionalId, identity, partitions),
      verdict: (answer) => telling(answer.partitions),
      // The broker's own metadata may lag behind the topic's creation.
      patience: [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
      onLost,
    });
  }

  /** As `addPartitions`. */
  async addOffsets(identity: ProducerIdentity, groupId: string, onLost: () => void): Promise<void> {
    const { transactionalId } = this.#options;
    await this.#ask({
      type: 'transaction',
      key: transactionalId,
      exchange: addOffsetsToTxnExchange(transactionalId, identity, groupId),
      verdict: (answer) => answer,
      onLost,
    });
  }

  /**
   * Writes the offsets as a part of the transaction. It is not repeated after a lost answer: offsets carry no sequence, so a late execution after the
   * transaction's end would stay pending for ever on brokers that do not verify transactions (before 3.6), and `require_stable` would wait for it. The
   * abort that follows raises the epoch in the group's partition too, and so shuts it out. Under version 2 the offsets' partition is added by it as well.
   */
  async commitOffsets(
    version: TransactionVersion,
    identity: ProducerIdentity,
    group: GroupMetadata,
    offsets: readonly OffsetToCommit[],
  ): Promise<void> {
    const { transactionalId } = this.#options;
    await this.#ask({
      type: 'group',
      key: group.groupId,
      exchange: txnOffsetCommitExchange(version === 1 ? 3 : 5, transactionalId, identity, group, offsets),
      verdict: (answer) => telling(answer.partitions),
      patience: [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
      onLost: (error) => {
        throw error;
      },
    });
  }

  /**
   * Ends the transaction. It is not repeated after a lost answer, although a repetition would find the transaction ended and be answered alike: the lost
   * request could still be on its way and end a later transaction of this epoch. Hence OutcomeUnknownError, and only a new epoch leads on.
   * Under version 2 it gives the identity for the next transaction.
   */
  async end(
    version: TransactionVersion,
    identity: ProducerIdentity,
    commit: boolean,
    onSent: () => void,
  ): Promise<ProducerIdentity | undefined> {
    const { transactionalId } = this.#options;
    let doubtful = false;
    let sent = false;
    try {
      const { next } = await this.#ask({
        type: 'transaction',
        key: transactionalId,
        exchange: endTxnExchange(version === 1 ? 1 : 5, transactionalId, identity, commit),
        verdict: (answer) => answer,
        onSent: () => {
          if (!sent) onSent();
          sent = true;
        },
        onLost: (error) => {
          throw error;
        },
        onDoubt: () => {
          doubtful = true;
        },
      });
      return next;
    } catch (error) {
      if (!doubtful && !(error instanceof ConnectionLostError)) throw error;
      throw new OutcomeUnknownError(
        `Whether the transaction of '${transactionalId}' is ${commit ? 'committed' : 'aborted'} is not known: EndTxn had no sure answer. ` +
          'Initialise anew, which settles it, and read the committed offsets.',
        { cause: error },
      );
    }
  }

  async #ask<T>(question: Question<T>): Promise<T> {
    const { type, key, exchange } = question;
    const { transactionalId, transactionTimeoutMs, requestTimeoutMs } = this.#options;
    const round = this.#round;
    const limitMs = transactionTimeoutMs + requestTimeoutMs;
    const deadline = performance.now() + limitMs;
    const concurrent = concurrentTransactionsBackOff();
    const moving = movingBackOff();
    for (;;) {
      const attempt = await this.#attempt(question, Math.max(1, Math.min(requestTimeoutMs, deadline - performance.now())));
      if (!('failure' in attempt)) return attempt.answer;
      const { failure, code } = attempt;
      const delayMs = (code === ErrorCode.CONCURRENT_TRANSACTIONS ? concurrent : moving).next();
      if (code !== ErrorCode.CONCURRENT_TRANSACTIONS && code !== ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) {
        this.#connection.forgetCoordinator(type, key);
      }
      if (this.#connection.closed || performance.now() + delayMs >= deadline) {
        throw new RetriableError(
          `${exchange.apiName} for '${transactionalId}' had no success within ${limitMs} ms (transactionTimeoutMs plus requestTimeoutMs): ` +
            failure.message,
          { cause: failure },
        );
      }
      await new Promise((resolve) => setTimeout(resolve, delayMs));
      if (round !== this.#round)
        throw new RetriableError(`${exchange.apiName} for '${transactionalId}' was given up: the producer was initialised anew.`);
    }
  }

  /** Throws what no repetition mends. */
  async #attempt<T>(question: Question<T>, timeoutMs: number): Promise<{ answer: T } | { failure: TidemarkError; code: number }> {
    const { type, key, exchange, onSent } = question;
    let answer: T;
    try {
      const nodeId = await this.#connection.coordinator(type, key, timeoutMs);
      answer = await this.#connection.send(nodeId, exchange, { timeoutMs, ...(onSent === undefined ? {} : { onSent }) });
    } catch (error) {
      if (!(error instanceof RetriableError)) throw error;
      if (error instanceof ConnectionLostError) question.onLost?.(error);
      return { failure: error, code: ErrorCode.NETWORK_EXCEPTION };
    }
    const verdict = question.verdict(answer);
    const code = verdict.errorCode;
    if (code === ErrorCode.NONE) return { answer };
    const failure = this.#failure(verdict, exchange.apiName, type, key);
    // With these two a coordinator also says that its log took the change but not yet the replicas: a successor may know of it.
    if (code === ErrorCode.NOT_COORDINATOR || code === ErrorCode.COORDINATOR_NOT_AVAILABLE) question.onDoubt?.();
    else if (
      code !== ErrorCode.CONCURRENT_TRANSACTIONS &&
      code !== ErrorCode.COORDINATOR_LOAD_IN_PROGRESS &&
      question.patience?.includes(code) !== true
    ) {
      throw failure;
    }
    return { failure, code };
  }

  #failure({ errorCode: code, topic, partition }: Verdict, api: string, type: CoordinatorType, key: string): TidemarkError {
    const { transactionalId } = this.#options;
    const error = toKafkaError(code, {
      api,
      transactionalId,
      ...(type === 'group' ? { group: key } : {}),
      ...(topic === undefined || partition === undefined ? {} : { topic, partition }),
    });
    // Another member has the instance id; what this one processed is not its to commit. A new join says whether it may go on.
    if (code === ErrorCode.FENCED_INSTANCE_ID) return new StaleGenerationError(error.message);
    // The coordinator has another view of the transaction than this producer, for instance because it timed out. A new epoch brings them together.
    if (code === ErrorCode.INVALID_TXN_STATE) {
      return new RetriableError(
        `${api} for '${transactionalId}' answered ${errorName(code)}: initialise anew and do the transaction again.`,
      );
    }
    return error;
  }
}

/** Of partitions that are added all or none, the one whose error says why; the others only say that they were not tried. */
function telling(partitions: readonly Verdict[]): Verdict {
  const errors = partitions.filter(({ errorCode }) => errorCode !== ErrorCode.NONE);
  return errors.find(({ errorCode }) => errorCode !== ErrorCode.OPERATION_NOT_ATTEMPTED) ?? errors[0] ?? { errorCode: ErrorCode.NONE };
}
