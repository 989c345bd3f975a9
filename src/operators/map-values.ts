import { ProcessingError } from '../model/errors.ts';
import type { Operator } from './step.ts';
import { refusePromise, type UserFunction } from './user-function.ts';

/** Replaces the value. */
export function mapValues(node: string, mapper: UserFunction<unknown>): Operator {
  return (forward) => (key, value, context) => {
    let mapped: unknown;
    try {
      mapped = mapper(value, key, context);
    } catch (error) {
      throw new ProcessingError(node, error);
    }
    refusePromise(node, mapped);
    forward(key, mapped, context);
  };
}
