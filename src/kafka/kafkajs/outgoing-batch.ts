import type { Compression } from '../port.ts';
import type { ProducerIdentity } from './wire/producer-identity.ts';
import type { RecordBatchEncoder } from './wire/record-batch-encoder.ts';

/** A batch that takes no more records. Its bytes and its sequence are fixed when it is first sent, and every retry sends the same. */
export class OutgoingBatch {
  readonly topic: string;
  readonly partition: number;
  readonly encoder: RecordBatchEncoder;
  /** On the monotonic clock, in milliseconds. */
  readonly deadline: number;
  /** Before compression, as it counts in the buffers. */
  readonly size: number;
  readonly count: number;
  #bytes: Buffer | undefined;

  constructor(topic: string, partition: number, encoder: RecordBatchEncoder, deadline: number) {
    this.topic = topic;
    this.partition = partition;
    this.encoder = encoder;
    this.deadline = deadline;
    this.size = encoder.bytes;
    this.count = encoder.count;
  }

  /** Whether it has a place in the sequence, so that the broker may have it, or will miss it. */
  get sealed(): boolean {
    return this.#bytes !== undefined;
  }

  get bytes(): Buffer {
    if (this.#bytes === undefined) throw new Error(`the batch for ${this.topic}/${this.partition} is not sealed`);
    return this.#bytes;
  }

  seal(identity: ProducerIdentity, baseSequence: number, transactional: boolean, compression: Compression): void {
    this.#bytes = this.encoder.seal({ ...identity, baseSequence, transactional }, compression);
  }
}
