import { ProcessingError } from '../model/errors.ts';
import type { Operator } from './step.ts';
import { refusePromise, type UserFunction } from './user-function.ts';

/** Replaces key and value. */
export function map(node: string, mapper: UserFunction<readonly [unknown, unknown]>): Operator {
  return (forward) => (key, value, context) => {
    let mapped: readonly [unknown, unknown];
    try {
      mapped = mapper(value, key, context);
    } catch (error) {
      throw new ProcessingError(node, error);
    }
    requirePair(node, mapped);
    forward(mapped[0], mapped[1], context);
  };
}

export function requirePair(node: string, result: unknown): asserts result is readonly [unknown, unknown] {
  if (Array.isArray(result) && result.length === 2) return;
  refusePromise(node, result);
  throw new ProcessingError(node, new TypeError('its function must return [key, value]'));
}
