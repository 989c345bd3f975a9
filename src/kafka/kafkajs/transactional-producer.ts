import { ConfigurationError, FatalError, FencedError, RetriableError, type TidemarkError } from '../../model/errors.ts';
import type { FailPoints } from '../../model/fail-point.ts';
import type { GroupMetadata, OffsetToCommit, TransactionalProducer, TransactionalProducerOptions } from '../port.ts';
import { BufferedProducer } from './buffered-producer.ts';
import type { ConnectionConfig, TransactionVersion } from './config.ts';
import { ConnectionLostError } from './connection-error.ts';
import { Enlistment } from './enlistment.ts';
import { transactionTimeout } from './producer-config.ts';
import type { SendingSession } from './sender.ts';
import { TransactionCoordinator } from './transaction-coordinator.ts';
import { NEWEST_PRODUCE_VERSION, OLDEST_PRODUCE_VERSION, PRODUCE_VERSION_OF_TRANSACTION_V2 } from './wire/produce.ts';
import type { ProducerIdentity } from './wire/producer-identity.ts';

/** `failed`: commit, abort or init threw, so that the fate of the transaction is open. */
type State = 'fresh' | 'ready' | 'open' | 'ending' | 'failed' | 'closed';

/**
 * Transactions; see the port for the states.
 *
 * Under transaction version 1 an epoch spans many transactions, so a request whose answer was lost may be executed late, inside a transaction that
 * has nothing to do with it. Hence the rule here: once an answer is missing, no further transaction is begun under that epoch. A transaction that can be
 * committed nevertheless is committed, and a new epoch is taken before the next one; one that is to be aborted is aborted by taking the new epoch,
 * whose markers shut the late request out of every partition.
 *
 * Under version 2 (KIP-890) each transaction has an epoch of its own, and the brokers add partitions and offsets to it as they are written. Only what
 * became of the last request may be unsure, and there too the new epoch settles it.
 */
export class KafkaTransactionalProducer extends BufferedProducer implements TransactionalProducer {
  readonly #transactionalId: string;
  readonly #coordinator: TransactionCoordinator;
  readonly #failPoints: FailPoints | undefined;
  readonly #newestVersion: TransactionVersion;
  #version: TransactionVersion = 1;
  #state: State = 'fresh';
  /** What made the state `failed`. */
  #failure: TidemarkError | undefined;
  #identity: ProducerIdentity = { producerId: -1n, producerEpoch: -1 };
  #enlistment: Enlistment;
  #offsetsSent = false;
  #offsetsAdded = false;
  /** A request of this epoch may still be executed. */
  #late = false;
  /** Counts initialisations, so that a call which one of them overtakes notices. */
  #round = 0;

  constructor(config: ConnectionConfig, options: TransactionalProducerOptions) {
    super(config, options);
    if (options.transactionalId === '') throw new ConfigurationError("'transactionalId' is empty.");
    this.#transactionalId = options.transactionalId;
    this.#failPoints = options.failPoints;
    this.#newestVersion = config.transactionVersion;
    this.#coordinator = new TransactionCoordinator(this.connection, {
      transactionalId: options.transactionalId,
      transactionTimeoutMs: transactionTimeout(options),
      requestTimeoutMs: this.options.requestTimeoutMs,
    });
    this.#enlistment = this.#newEnlistment();
  }

  get inTransaction(): boolean {
    return this.#state === 'open' || this.#state === 'ending' || this.#state === 'failed';
  }

  async init(): Promise<void> {
    if (this.#state === 'closed') throw new FatalError('The producer is closed.');
    const round = ++this.#round;
    this.sender.reset();
    this.#state = 'failed';
    this.#failure = undefined;
    try {
      const identity = await this.#coordinator.initProducerId();
      const version = await this.#coordinator.transactionVersion(this.#newestVersion);
      this.#assertCurrent(round);
      this.#version = version;
      this.#start(identity);
    } catch (error) {
      if (round === this.#round) this.#failure = error as TidemarkError;
      throw error;
    }
  }

  begin(): void {
    this.#assertState('ready', 'begin');
    this.#state = 'open';
  }

  async sendOffsets(offsets: readonly OffsetToCommit[], group: GroupMetadata): Promise<void> {
    this.assertOpen('sendOffsets');
    if (this.sender.error !== undefined) throw this.sender.error;
    if (this.#offsetsSent) throw new FatalError('sendOffsets was called before in this transaction. Call it once, with all offsets.');
    if (offsets.length === 0) return;
    this.#offsetsSent = true;
    const round = this.#round;
    try {
      if (this.#version === 1) await this.#coordinator.addOffsets(this.#identity, group.groupId, () => this.#markLate(round));
      this.#offsetsAdded = true;
      await this.#coordinator.commitOffsets(this.#version, this.#identity, group, offsets);
    } catch (error) {
      if (round === this.#round) {
        // Under version 2 a refused commit of offsets may or may not have begun the transaction.
        if (error instanceof ConnectionLostError || this.#version === 2) this.#late = true;
        this.sender.fail(error as TidemarkError);
      }
      throw error;
    }
  }

  async commit(): Promise<void> {
    this.assertOpen('commit');
    const round = this.#round;
    // No record may slip in between the flush and EndTxn.
    this.#state = 'ending';
    try {
      await this.sender.flush();
    } catch (error) {
      if (round === this.#round) this.#state = 'open';
      throw error;
    }
    this.#assertCurrent(round);
    await this.#end(true);
  }

  async abort(): Promise<void> {
    this.assertOpen('abort');
    const round = this.#round;
    this.#state = 'ending';
    const clean = await this.#quiet();
    this.#assertCurrent(round);
    const { error } = this.sender;
    if (error instanceof FencedError) {
      this.#state = 'failed';
      this.#failure = error;
      throw error;
    }
    if (!clean || this.#late) return this.init();
    this.sender.resume();
    try {
      await this.#end(false);
    } catch (error) {
      if (error instanceof FencedError || error instanceof FatalError || round !== this.#round) throw error;
      await this.init();
    }
  }

  override async close(timeoutMs = 5_000): Promise<void> {
    // Otherwise the open transaction would hold back readers until it times out.
    if (this.#state === 'open') await settled(this.abort(), timeoutMs);
    this.#round++;
    this.#state = 'closed';
    await super.close();
  }

  protected override assertOpen(call: string): void {
    if (this.#state !== 'open') this.#assertState('open', call);
  }

  /** Nothing of this transaction is under way any more, and the broker has acknowledged all that it got of it. */
  async #quiet(): Promise<boolean> {
    const { requestTimeoutMs } = this.options;
    const [clean, stopped] = await Promise.all([this.sender.abandon(requestTimeoutMs), settled(this.#enlistment.stop(), requestTimeoutMs)]);
    return clean && stopped;
  }

  async #end(commit: boolean): Promise<void> {
    const begun = this.#version === 1 ? this.#enlistment.added : this.sender.sent;
    if (!begun && !this.#offsetsAdded) return this.#ended();
    const round = this.#round;
    this.#state = 'ending';
    let next: ProducerIdentity | undefined;
    let failPoint: void | Promise<void> | undefined;
    try {
      next = await this.#coordinator.end(this.#version, this.#identity, commit, () => {
        if (commit) failPoint = reached(this.#failPoints);
      });
      await failPoint;
      this.#assertCurrent(round);
    } catch (error) {
      if (round === this.#round) {
        this.#state = 'failed';
        this.#failure = error as TidemarkError;
      }
      throw error;
    }
    if (next !== undefined) return this.#start(next);
    this.#ended();
    if (this.#late) await this.#renewEpoch();
  }

  /** The transaction is over, and that is sure. What goes wrong here goes wrong for the next one. */
  async #renewEpoch(): Promise<void> {
    const round = this.#round;
    try {
      const identity = await this.#coordinator.initProducerId();
      if (round === this.#round) this.#start(identity);
    } catch (error) {
      if (round === this.#round) this.sender.fail(error as TidemarkError);
    }
  }

  #start(identity: ProducerIdentity): void {
    this.#identity = identity;
    this.#late = false;
    this.#failure = undefined;
    this.sender.start({ identity, transactionalId: this.#transactionalId, ...this.#manner() });
    this.#ended();
  }

  #manner(): Omit<SendingSession, 'identity' | 'transactionalId'> {
    if (this.#version === 2) {
      return { oldestProduceVersion: PRODUCE_VERSION_OF_TRANSACTION_V2, newestProduceVersion: PRODUCE_VERSION_OF_TRANSACTION_V2 };
    }
    return {
      oldestProduceVersion: OLDEST_PRODUCE_VERSION,
      newestProduceVersion: NEWEST_PRODUCE_VERSION,
      touched: (partition) => this.#enlistment.touch(partition),
      enlisted: () => this.#enlistment.done(),
    };
  }

  #ended(): void {
    this.#state = 'ready';
    this.#offsetsSent = false;
    this.#offsetsAdded = false;
    this.#enlistment = this.#newEnlistment();
    this.sender.nextTransaction();
  }

  #newEnlistment(): Enlistment {
    const round = this.#round;
    const enlistment: Enlistment = new Enlistment({
      add: (partitions) => this.#coordinator.addPartitions(this.#identity, partitions, () => this.#markLate(round)),
      onError: (error) => {
        if (this.#enlistment === enlistment) this.sender.fail(error);
      },
    });
    return enlistment;
  }

  #markLate(round: number): void {
    if (round === this.#round) this.#late = true;
  }

  #assertState(wanted: State, call: string): void {
    if (this.#state === wanted) return;
    if (this.#state === 'failed' && this.#failure !== undefined) throw this.#failure;
    throw new FatalError(`${call} is not possible now: the producer is '${this.#state}', and has to be '${wanted}'.`);
  }

  #assertCurrent(round: number): void {
    if (round !== this.#round) throw new RetriableError('The producer was initialised anew in the meantime; the transaction is aborted.');
  }
}

function reached(failPoints: FailPoints | undefined): void | Promise<void> {
  try {
    const reaching = failPoints?.('end-txn-sent');
    // It is awaited after the answer; until then its rejection is nobody's.
    reaching?.catch(() => undefined);
    return reaching;
  } catch (error) {
    const failed = Promise.reject(error);
    failed.catch(() => undefined);
    return failed;
  }
}

/** Whether it settled in time, one way or the other. */
async function settled(promise: Promise<void>, timeoutMs: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(resolve, timeoutMs, false);
  });
  const done = promise.then(
    () => true,
    () => true,
  );
  const inTime = await Promise.race([done, late]);
  clearTimeout(timer);
  return inTime;
}
