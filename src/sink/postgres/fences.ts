import { SinkFencedError } from '../../model/errors.ts';
import { topicPartitionKey, type TopicPartition } from '../../model/topic-partition.ts';
import { quoteIdentifier } from './identifier.ts';
import type { Session } from './session.ts';

/** What a claim found and took. */
export interface Claim {
  readonly nextOffset: bigint;
  readonly epoch: bigint;
}

interface FenceRow extends Record<string, unknown> {
  readonly next_offset: string;
  readonly epoch: string;
}

/** The row of each partition that says how far it is applied, and who may go on. It makes redelivery harmless for ever. */
export class Fences {
  readonly #owner: readonly [application: string, stage: string];
  readonly #claim: string;
  readonly #advance: string;
  readonly #read: string;

  constructor(schema: string, application: string, stage: string) {
    const table = `${quoteIdentifier(schema)}.fences`;
    this.#owner = [application, stage];
    // Waits for a transaction of the owner before that is still running: afterwards, it is applied or it never will be.
    this.#claim =
      `INSERT INTO ${table} AS f (application, stage, topic, partition, next_offset, epoch) VALUES ($1, $2, $3, $4, $5, 1) ` +
      `ON CONFLICT (application, stage, topic, partition) DO UPDATE SET epoch = f.epoch + 1, updated_at = now() RETURNING next_offset, epoch`;
    this.#advance =
      `UPDATE ${table} SET next_offset = $5, updated_at = now() ` +
      `WHERE application = $1 AND stage = $2 AND topic = $3 AND partition = $4 AND next_offset = $6 AND epoch = $7`;
    this.#read = `SELECT next_offset, epoch FROM ${table} WHERE application = $1 AND stage = $2 AND topic = $3 AND partition = $4`;
  }

  async claim(session: Session, { topic, partition }: TopicPartition, start: bigint): Promise<Claim> {
    const { rows } = await session.query<FenceRow>(this.#claim, [...this.#owner, topic, partition, String(start)]);
    const row = rows[0];
    if (row === undefined) throw new Error('the claim of a fence returned no row');
    return { nextOffset: BigInt(row.next_offset), epoch: BigInt(row.epoch) };
  }

  /** Moves the position on; false: it is not where this owner believes, or not this owner's any more. */
  async advance(session: Session, { topic, partition }: TopicPartition, from: bigint, to: bigint, epoch: bigint): Promise<boolean> {
    const answer = await session.query(this.#advance, [...this.#owner, topic, partition, String(to), String(from), String(epoch)]);
    return answer.rowCount === 1;
  }

  async fencedError(session: Session, { topic, partition }: TopicPartition, from: bigint, epoch: bigint): Promise<SinkFencedError> {
    const { rows } = await session.query<FenceRow>(this.#read, [...this.#owner, topic, partition]);
    const found = rows[0] === undefined ? 'it has no row' : `it is at offset ${rows[0].next_offset}, epoch ${rows[0].epoch}`;
    return new SinkFencedError(
      `the fence of ${topicPartitionKey(topic, partition)} is not at offset ${from}, epoch ${epoch}: ${found}. Another owner has taken over, or the batch is applied already`,
    );
  }
}
