import { ProcessingError } from '../model/errors.ts';
import { idempotencyKeyHeader, withIdempotencyKey } from '../model/idempotency-key.ts';
import type { RecordContext } from '../model/record.ts';
import { refusePromise } from './user-function.ts';

/**
 * Hands each result of one record to `take`. What the iterable throws is an error of the node; what `take` throws, from the steps behind it,
 * is not.
 */
export function eachResult(
  node: string,
  results: unknown,
  context: RecordContext,
  take: (result: unknown, context: RecordContext) => void,
): void {
  if (Array.isArray(results)) {
    for (let i = 0; i < results.length; i++) take(results[i], i === 0 ? context : derivedContext(context, i));
    return;
  }
  refusePromise(node, results);
  const iterator = iteratorOf(node, results);
  let done = false;
  try {
    for (let i = 0; ; i++) {
      let next: IteratorResult<unknown>;
      try {
        next = iterator.next();
      } catch (error) {
        done = true;
        throw new ProcessingError(node, error);
      }
      if (next.done === true) {
        done = true;
        return;
      }
      take(next.value, i === 0 ? context : derivedContext(context, i));
    }
  } finally {
    if (!done) iterator.return?.();
  }
}

function iteratorOf(node: string, results: unknown): Iterator<unknown> {
  const iterable = results as Partial<Iterable<unknown>> | null | undefined;
  if (typeof iterable?.[Symbol.iterator] !== 'function') {
    throw new ProcessingError(node, new TypeError('its function must return an iterable, such as an array (an empty one for no result)'));
  }
  try {
    return (iterable as Iterable<unknown>)[Symbol.iterator]();
  } catch (error) {
    throw new ProcessingError(node, error);
  }
}

/**
 * Several records from one would all carry the sender's idempotency key, and whoever dedups by it would keep only the first. So the second and
 * further ones get a key of their own, which is the same each time that the sender's record comes again.
 */
function derivedContext(context: RecordContext, index: number): RecordContext {
  const key = idempotencyKeyHeader(context.headers);
  if (key === undefined) return context;
  const { topic, partition, offset, timestamp } = context;
  return { topic, partition, offset, timestamp, headers: withIdempotencyKey(context.headers, `${key}/${index}`) };
}
