import type { TidemarkError } from '../../model/errors.ts';
import type { TopicPartition } from '../../model/topic-partition.ts';

export interface EnlistmentOptions {
  /** Adds partitions to the open transaction at its coordinator. */
  add(partitions: readonly TopicPartition[]): Promise<void>;
  /** Told at most once. */
  onError(error: TidemarkError): void;
}

/**
 * The partitions of one transaction. They are added while the first records are still being gathered, all that one turn of the event loop
 * touches in one request, so that a flush seldom waits for it.
 */
export class Enlistment {
  readonly #options: EnlistmentOptions;
  #waiting: TopicPartition[] = [];
  #running: Promise<void> | undefined;
  #error: TidemarkError | undefined;
  #added = false;

  constructor(options: EnlistmentOptions) {
    this.#options = options;
  }

  /** Whether the coordinator has added a partition. */
  get added(): boolean {
    return this.#added;
  }

  touch(partition: TopicPartition): void {
    this.#waiting.push(partition);
    if (this.#error === undefined) this.#running ??= this.#run();
  }

  /** Resolves when all that was touched is added. Throws what prevented it. */
  async done(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
    if (this.#error !== undefined) throw this.#error;
  }

  /** Adds no more; resolves when nothing is under way. Never rejects. */
  async stop(): Promise<void> {
    this.#waiting = [];
    await this.#running;
  }

  /** Never rejects. */
  async #run(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    try {
      while (this.#waiting.length > 0) {
        await this.#options.add(this.#waiting.splice(0));
        this.#added = true;
      }
    } catch (error) {
      this.#error = error as TidemarkError;
      this.#options.onError(this.#error);
    } finally {
      this.#running = undefined;
    }
  }
}
