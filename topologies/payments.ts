/**
 * Payments: transfers between accounts, booked with double entry inside the sink's database transaction.
 *
 *   transfers --> [validate] --> transfers-valid --> Postgres: accounts, entries, transfers
 *                          \--> transfers-refused
 *
 * A transfer that is sent twice by its sender, with the same idempotency key, is two records in Kafka, which no Kafka transaction can see. The
 * sink's keys can: it is booked once.
 */
import { json, postgresSink, type SinkMode, type SinkTransaction, StreamsBuilder, string, type Topology } from '../src/index.ts';

export interface Transfer {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  readonly amountCents: number;
}

export interface PaymentsOptions {
  /** Before the names of all topics. */
  readonly prefix?: string;
  /** Postgres connection string. Default: DATABASE_URL, else a local server. */
  readonly database?: string;
  /** The schema of the tables. Default `public`. */
  readonly schema?: string;
  readonly mode?: SinkMode;
  /** Called for each transfer: stands for the work that checking it takes. */
  readonly work?: () => void;
}

/** No unique constraint on transfers and entries, on purpose: nothing but the sink keeps them free of duplicates. */
export function paymentsTables(schema: string): string {
  return `
    CREATE TABLE "${schema}".accounts (id text PRIMARY KEY, balance_cents bigint NOT NULL CHECK (balance_cents >= 0));
    CREATE TABLE "${schema}".transfers (id text NOT NULL, state text NOT NULL);
    CREATE TABLE "${schema}".entries (transfer_id text NOT NULL, account_id text NOT NULL, amount_cents bigint NOT NULL)`;
}

export function paymentsTopology(options: PaymentsOptions = {}): Topology {
  const {
    prefix = '',
    database = process.env['DATABASE_URL'] ?? 'postgres://127.0.0.1/postgres',
    schema = 'public',
    mode = 'exactly-once',
    work,
  } = options;
  const builder = new StreamsBuilder();

  const { valid, refused } = builder
    .stream(`${prefix}transfers`, { key: string(), value: json<Transfer>() })
    .peek(() => work?.(), { name: 'check' })
    .split({ name: 'validate' })
    .branch('valid', isValid)
    .defaultBranch('refused');
  valid.to(`${prefix}transfers-valid`);
  refused.to(`${prefix}transfers-refused`);

  builder.stream(`${prefix}transfers-valid`, { key: string(), value: json<Transfer>() }).sink(
    postgresSink<string, Transfer>({
      connection: database,
      mode,
      effect: async (tx, records) => {
        await book(
          tx,
          schema,
          records.map(({ value }) => value),
        );
      },
    }),
    { name: 'ledger' },
  );
  return builder.build();
}

function isValid(transfer: Transfer): boolean {
  return Number.isSafeInteger(transfer.amountCents) && transfer.amountCents > 0 && transfer.from !== transfer.to;
}

/** Each transfer moves its amount and leaves two entries whose sum is zero, or is declined, for lack of funds or of an account, and leaves none. */
async function book(tx: SinkTransaction, schema: string, transfers: readonly Transfer[]): Promise<void> {
  const accounts = [...new Set(transfers.flatMap(({ from, to }) => [from, to]))].toSorted();
  // All locks first, in one order: two batches that meet in the same accounts wait for each other instead of deadlocking.
  await tx.query(`SELECT 1 FROM "${schema}".accounts WHERE id = ANY($1) ORDER BY id FOR UPDATE`, [accounts]);
  for (const { id, from, to, amountCents } of transfers) {
    await tx.query(
      `WITH debit AS (
         UPDATE "${schema}".accounts SET balance_cents = balance_cents - $4
         WHERE id = $2 AND balance_cents >= $4 AND EXISTS (SELECT FROM "${schema}".accounts WHERE id = $3) RETURNING id
       ), credit AS (
         UPDATE "${schema}".accounts SET balance_cents = balance_cents + $4 WHERE id = $3 AND EXISTS (SELECT FROM debit) RETURNING id
       ), entries AS (
         INSERT INTO "${schema}".entries (transfer_id, account_id, amount_cents)
         SELECT $1, id, -$4::bigint FROM debit UNION ALL SELECT $1, id, $4 FROM credit
       )
       INSERT INTO "${schema}".transfers (id, state) VALUES ($1, CASE WHEN EXISTS (SELECT FROM credit) THEN 'booked' ELSE 'declined' END)`,
      [id, from, to, amountCents],
    );
  }
}

export default paymentsTopology;
