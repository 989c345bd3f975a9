/** Where both sinks write. Without a unique constraint: what keeps it free of duplicates is the idempotency keys alone. */
export function purchasesTable(schema: string): string {
  return `CREATE TABLE "${schema}".purchases
    (id bigint NOT NULL, customer text NOT NULL, amount numeric NOT NULL, sent bigint NOT NULL, kind text NOT NULL, region text NOT NULL, pad text NOT NULL)`;
}
