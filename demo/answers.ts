import type { Pool } from 'pg';
import { DELAYED_FROM_MINUTES } from '../topologies/flights.ts';
import type { Names } from './guarantees.ts';
import { ACCOUNTS, INITIAL_BALANCE_CENTS } from './payments-input.ts';

export interface FlightsAnswer {
  /** Whether the sink's table and the raw file give the same answer for every airport. */
  readonly equal: boolean;
  readonly airports: number;
  readonly worst: readonly { readonly origin: string; readonly flights: number; readonly delayed: number; readonly mean: string }[];
}

const PER_AIRPORT = `origin, count(*)::int AS flights, count(*) FILTER (WHERE delay >= ${DELAYED_FROM_MINUTES})::int AS delayed, round(avg(delay), 4)::text AS mean`;

/** The same question to the table that the sink has filled and, as one SQL query, to the raw file: flights, delayed ones and mean delay per airport. */
export async function askFlights(pool: Pool, names: Names, rawFile: string): Promise<FlightsAnswer> {
  const { rows: sunk } = await pool.query(`SELECT ${PER_AIRPORT} FROM "${names.schema}".flights GROUP BY origin ORDER BY origin`);
  const { rows: raw } = await pool.query(
    `SELECT ${PER_AIRPORT} FROM jsonb_to_recordset($1::jsonb) AS file (delay int, origin text) GROUP BY origin ORDER BY origin`,
    [rawFile],
  );
  const worst = (sunk as FlightsAnswer['worst'][number][]).toSorted((a, b) => b.delayed - a.delayed).slice(0, 3);
  return { equal: JSON.stringify(sunk) === JSON.stringify(raw), airports: raw.length, worst };
}

export interface LedgerAnswer {
  /** No money has come from nowhere or gone there, each balance is what its entries say, and each transfer's entries cancel out. */
  readonly sound: boolean;
  readonly totalCents: string;
  readonly booked: number;
  readonly declined: number;
}

export async function askLedger(pool: Pool, { schema }: Names): Promise<LedgerAnswer> {
  const { rows } = await pool.query<{ total: string; booked: number; declined: number; wrong_balances: number; wrong_transfers: number }>(
    `SELECT
       (SELECT sum(balance_cents) FROM "${schema}".accounts)::text AS total,
       (SELECT count(*) FROM "${schema}".transfers WHERE state = 'booked')::int AS booked,
       (SELECT count(*) FROM "${schema}".transfers WHERE state = 'declined')::int AS declined,
       (SELECT count(*) FROM "${schema}".accounts AS a
          WHERE balance_cents <> $1 + coalesce((SELECT sum(amount_cents) FROM "${schema}".entries AS e WHERE e.account_id = a.id), 0))::int AS wrong_balances,
       (SELECT count(*) FROM (SELECT transfer_id FROM "${schema}".entries GROUP BY transfer_id HAVING sum(amount_cents) <> 0 OR count(*) <> 2) AS t)::int
         AS wrong_transfers`,
    [INITIAL_BALANCE_CENTS],
  );
  const row = rows[0];
  if (row === undefined) throw new Error('the ledger gave no answer');
  const sound = row.total === String(ACCOUNTS * INITIAL_BALANCE_CENTS) && row.wrong_balances === 0 && row.wrong_transfers === 0;
  return { sound, totalCents: row.total, booked: row.booked, declined: row.declined };
}
