import { RecordBatchEncoder } from './wire/record-batch-encoder.ts';

/** Encoders whose grown buffers are used again, up to a number of bytes. */
export class EncoderPool {
  readonly #maxBytes: number;
  readonly #free: RecordBatchEncoder[] = [];
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  take(maxBatchBytes: number): RecordBatchEncoder {
    const encoder = this.#free.pop();
    if (encoder === undefined) return new RecordBatchEncoder(maxBatchBytes);
    this.#bytes -= encoder.capacity;
    encoder.reset(maxBatchBytes);
    return encoder;
  }

  /** Only when nothing can read the bytes of its last batch any more. */
  give(encoder: RecordBatchEncoder): void {
    if (this.#bytes + encoder.capacity > this.#maxBytes) return;
    this.#free.push(encoder);
    this.#bytes += encoder.capacity;
  }
}
