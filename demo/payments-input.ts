/** The input of the payments pipeline: transfers between accounts, some of which the sender sends twice, as senders do when an answer is lost. */
import { IDEMPOTENCY_KEY_HEADER, type IdempotentProducer, partitionForKey, textHeader } from '../src/index.ts';
import type { Transfer } from '../topologies/payments.ts';
import type { SeededRandom } from './seeded-random.ts';

export const ACCOUNTS = 50;
export const INITIAL_BALANCE_CENTS = 50_000;

const RESEND_PROBABILITY = 0.03;

export function accountId(number: number): string {
  return `account-${number}`;
}

export interface PaymentsInput {
  /** Each transfer once. */
  readonly transfers: readonly Transfer[];
  /** The ids of those that were sent a second time, with the same idempotency key. */
  readonly resent: ReadonlySet<string>;
}

export function makeTransfers(count: number, random: SeededRandom): Transfer[] {
  return Array.from({ length: count }, (_, i) => {
    const from = random.integer(ACCOUNTS);
    const to = (from + 1 + random.integer(ACCOUNTS - 1)) % ACCOUNTS;
    return { id: `transfer-${i}`, from: accountId(from), to: accountId(to), amountCents: 1 + random.integer(2_000) };
  });
}

/** Publishes the transfers, keyed by the account that pays. */
export async function publishTransfers(
  producer: IdempotentProducer,
  topic: string,
  transfers: readonly Transfer[],
  random: SeededRandom,
  signal: AbortSignal,
): Promise<PaymentsInput> {
  await producer.loadTopics([topic]);
  const partitions = producer.partitionCount(topic) ?? 1;
  const started = Date.now();
  const resent = new Set<string>();
  for (const [i, transfer] of transfers.entries()) {
    signal.throwIfAborted();
    const send = (): void =>
      producer.append(topic, partitionForKey(transfer.from, partitions), transfer.from, JSON.stringify(transfer), started + i, [
        textHeader(IDEMPOTENCY_KEY_HEADER, transfer.id),
      ]);
    send();
    if (random.next() < RESEND_PROBABILITY) {
      send();
      resent.add(transfer.id);
    }
    await producer.ready();
  }
  await producer.flush();
  return { transfers, resent };
}
