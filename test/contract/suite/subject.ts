import { randomBytes } from 'node:crypto';
import type { KafkaClient } from '../../../src/kafka/port.ts';

/** What a request may meet on its way. Each hits the next requests of that api, one where `times` is left out, and counts. */
export interface Faults {
  /** Executed, but the answer is lost together with the connection. */
  loseAnswer(api: string, times?: number): Fault;
  /** Lost on its way together with the connection. */
  loseRequest(api: string, times?: number): Fault;
  /** Not executed; answered with this error code. */
  refuse(api: string, errorCode: number, times?: number): Fault;
  /** From now on no connection works. */
  partition(): void;
  /** Ends every fault. */
  heal(): void;
}

export interface Fault {
  readonly fired: number;
}

/** A client whose way to the cluster can be disturbed. */
export interface DisturbedClient {
  readonly client: KafkaClient;
  readonly faults: Faults;
  close(): Promise<void>;
}

/** The implementation of the port that is put to the test, on one cluster for the whole suite. */
export interface Subject {
  readonly client: KafkaClient;
  disturbed(): Promise<DisturbedClient>;
  close(): Promise<void>;
}

/** What is known of a subject before it is opened. */
export interface Traits {
  /** Under 2, no request adds partitions or offsets to a transaction (KIP-890). */
  readonly transactionVersion: 1 | 2;
}

/** For topics of tests, whose records bear old times: the broker's retention would delete them, now and then in the middle of a test. */
export const KEPT = { 'retention.ms': '-1' };

/** A name that no other run uses. */
export function unique(prefix: string): string {
  return `${prefix}-${randomBytes(6).toString('hex')}`;
}

/** What must be closed at the end of a test, in the opposite order. */
export class Closing {
  readonly #items: { close(): Promise<unknown> }[] = [];

  add<T extends { close(): Promise<unknown> }>(item: T): T {
    this.#items.push(item);
    return item;
  }

  async closeAll(): Promise<void> {
    for (const item of this.#items.splice(0).toReversed()) await item.close();
  }
}
