import { ProcessingError } from '../model/errors.ts';
import type { RecordContext } from '../model/record.ts';

/** A function of an application, with its types erased. The value comes first, then the key, then the rest. */
export type UserFunction<R> = (value: unknown, key: unknown, context: RecordContext) => R;

/** Steps are synchronous. A promise that is taken for a result is a silent fault (`filter(async ...)` keeps everything). */
export function refusePromise(node: string, result: unknown): void {
  if (typeof result === 'object' && result !== null && typeof (result as { then?: unknown }).then === 'function') {
    // The error below tells of the promise; its own rejection must not end the process besides.
    (result as PromiseLike<unknown>).then(undefined, () => undefined);
    throw new ProcessingError(
      node,
      new TypeError('its function returned a promise, but steps are synchronous: do what needs to wait behind a sink'),
    );
  }
}
