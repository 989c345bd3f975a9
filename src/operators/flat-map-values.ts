import { ProcessingError } from '../model/errors.ts';
import { eachResult } from './each-result.ts';
import type { Operator } from './step.ts';
import { refusePromise, type UserFunction } from './user-function.ts';

/** Replaces a record by any number of records with the same key. */
export function flatMapValues(node: string, mapper: UserFunction<Iterable<unknown>>): Operator {
  return (forward) => (key, value, context) => {
    let results: unknown;
    try {
      results = mapper(value, key, context);
    } catch (error) {
      throw new ProcessingError(node, error);
    }
    eachResult(node, results, context, (result, derived) => {
      refusePromise(node, result);
      forward(key, result, derived);
    });
  };
}
