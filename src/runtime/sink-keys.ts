import { ProcessingError } from '../model/errors.ts';
import { coordinatesKey, idempotencyKeyHeader } from '../model/idempotency-key.ts';
import type { RecordContext } from '../model/record.ts';
import type { ExternalSinkNode } from '../topology/graph.ts';

/**
 * The idempotency keys of what one source record gives: by the function of the sink, else from the header, else the coordinates. A header and
 * coordinates name the source record, so where it gives several records under one name, all but the first get a number: without it, they would
 * be taken for duplicates of each other. What the function of the sink says is taken at its word.
 */
export class SinkKeys {
  readonly #node: ExternalSinkNode;
  readonly #used = new Map<string, number>();

  constructor(node: ExternalSinkNode) {
    this.#node = node;
  }

  /** The next source record begins. */
  reset(): void {
    if (this.#used.size > 0) this.#used.clear();
  }

  keyFor(key: unknown, value: unknown, context: RecordContext): string {
    const given = this.#given(key, value, context);
    if (given !== undefined) return given;
    const name = idempotencyKeyHeader(context.headers) ?? coordinatesKey(context);
    const count = this.#used.get(name) ?? 0;
    this.#used.set(name, count + 1);
    return count === 0 ? name : `${name}~${count}`;
  }

  #given(key: unknown, value: unknown, context: RecordContext): string | undefined {
    const { name, sink } = this.#node;
    if (sink.idempotencyKey === undefined) return undefined;
    let given: unknown;
    try {
      given = sink.idempotencyKey(value, key, context);
    } catch (error) {
      throw new ProcessingError(name, error);
    }
    if (given === null || given === undefined || given === '') return undefined;
    if (typeof given !== 'string')
      throw new ProcessingError(name, new TypeError(`idempotencyKey returned a ${typeof given}: return a string, or null`));
    return given;
  }
}
