import type { GroupConsumer, GroupMetadata, IdempotentProducer, OffsetToCommit, Producer, TransactionalProducer } from '../kafka/port.ts';
import type { FailPointName, FailPoints } from '../model/fail-point.ts';
import type { WorkStep } from './remedy.ts';

/** How outputs and positions become permanent. One implementation for each guarantee; a worker has one. */
export interface CommitProtocol {
  readonly producer: Producer;
  /** Where `commit` or `release` is, or where it failed. */
  readonly step: WorkStep;
  /** True where offsets are committed before their records are processed: such batches wait for `release`. */
  readonly commitsBeforeProcessing: boolean;
  /** Takes a producer id or a new epoch; ends whatever was open. */
  init(): Promise<void>;
  /** Called before a record is processed; more than once is fine. */
  begin(): void;
  /** Makes everything since the last commit permanent, and the positions with it. */
  commit(positions: readonly OffsetToCommit[]): Promise<void>;
  /** Only where `commitsBeforeProcessing`: what lies before these positions may be processed from now on. */
  release(positions: readonly OffsetToCommit[]): Promise<void>;
  /** Drops the outputs since the last commit. */
  abort(): Promise<void>;
}

/** Outputs and offsets are one Kafka transaction. */
export class TransactionalCommit implements CommitProtocol {
  readonly producer: TransactionalProducer;
  readonly commitsBeforeProcessing = false;
  step: WorkStep = 'flush';
  readonly #group: () => GroupMetadata;
  readonly #failPoints: FailPoints | undefined;

  /** `group`: of the generation in which the records were read; throws StaleGenerationError when that is over. */
  constructor(producer: TransactionalProducer, group: () => GroupMetadata, failPoints: FailPoints | undefined) {
    this.producer = producer;
    this.#group = group;
    this.#failPoints = failPoints;
  }

  async init(): Promise<void> {
    await this.producer.init();
  }

  begin(): void {
    if (!this.producer.inTransaction) this.producer.begin();
  }

  async commit(positions: readonly OffsetToCommit[]): Promise<void> {
    // (1) The positions were sealed by the caller, and nothing is processed until this has ended.
    this.begin();

    // (2) All outputs are acknowledged before the offsets that stand for them are sent.
    this.step = 'flush';
    await reach(this.#failPoints, 'before-flush');
    await this.producer.flush();
    await reach(this.#failPoints, 'after-flush');

    // (3) The group's coordinator refuses the offsets of a member whose generation is over: a zombie ends here (KIP-447).
    this.step = 'send-offsets';
    await this.producer.sendOffsets(positions, this.#group());
    await reach(this.#failPoints, 'after-send-offsets');

    // (4) From here on, an error means that nobody knows: only the committed offsets tell.
    this.step = 'end-transaction';
    await this.producer.commit();
    await reach(this.#failPoints, 'after-end-txn');

    // (5) Stores move their overlays to the committed table in the caller, once this resolves.
  }

  async release(): Promise<void> {}

  async abort(): Promise<void> {
    if (this.producer.inTransaction) await this.producer.abort();
  }
}

/** Outputs are acknowledged, then the offsets are committed: what was in flight when the process died is done again. */
export class FlushThenCommit implements CommitProtocol {
  readonly producer: IdempotentProducer;
  readonly commitsBeforeProcessing = false;
  step: WorkStep = 'flush';
  readonly #consumer: GroupConsumer;
  readonly #failPoints: FailPoints | undefined;

  constructor(producer: IdempotentProducer, consumer: GroupConsumer, failPoints: FailPoints | undefined) {
    this.producer = producer;
    this.#consumer = consumer;
    this.#failPoints = failPoints;
  }

  async init(): Promise<void> {
    await this.producer.init();
  }

  begin(): void {}

  async commit(positions: readonly OffsetToCommit[]): Promise<void> {
    this.step = 'flush';
    await reach(this.#failPoints, 'before-flush');
    await this.producer.flush();
    await reach(this.#failPoints, 'after-flush');
    this.step = 'commit-offsets';
    await this.#consumer.commit(positions);
    await reach(this.#failPoints, 'after-send-offsets');
  }

  async release(): Promise<void> {}

  /** Also mends a producer whose batch has failed. */
  async abort(): Promise<void> {
    await this.producer.init();
  }
}

/** Offsets are committed, then their records are processed: what was in flight when the process died is lost. */
export class CommitThenProcess implements CommitProtocol {
  readonly producer: IdempotentProducer;
  readonly commitsBeforeProcessing = true;
  step: WorkStep = 'flush';
  readonly #consumer: GroupConsumer;
  readonly #failPoints: FailPoints | undefined;

  constructor(producer: IdempotentProducer, consumer: GroupConsumer, failPoints: FailPoints | undefined) {
    this.producer = producer;
    this.#consumer = consumer;
    this.#failPoints = failPoints;
  }

  async init(): Promise<void> {
    await this.producer.init();
  }

  begin(): void {}

  async release(positions: readonly OffsetToCommit[]): Promise<void> {
    this.step = 'commit-offsets';
    await this.#consumer.commit(positions);
    await reach(this.#failPoints, 'after-send-offsets');
  }

  /** The positions are committed already; the outputs are what is left. */
  async commit(): Promise<void> {
    this.step = 'flush';
    await reach(this.#failPoints, 'before-flush');
    await this.producer.flush();
    await reach(this.#failPoints, 'after-flush');
  }

  async abort(): Promise<void> {
    await this.producer.init();
  }
}

async function reach(failPoints: FailPoints | undefined, name: FailPointName): Promise<void> {
  if (failPoints !== undefined) await failPoints(name);
}
