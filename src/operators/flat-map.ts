import { ProcessingError } from '../model/errors.ts';
import { eachResult } from './each-result.ts';
import { requirePair } from './map.ts';
import type { Operator } from './step.ts';
import type { UserFunction } from './user-function.ts';

/** Replaces a record by any number of records. */
export function flatMap(node: string, mapper: UserFunction<Iterable<readonly [unknown, unknown]>>): Operator {
  return (forward) => (key, value, context) => {
    let results: unknown;
    try {
      results = mapper(value, key, context);
    } catch (error) {
      throw new ProcessingError(node, error);
    }
    eachResult(node, results, context, (result, derived) => {
      requirePair(node, result);
      forward(result[0], result[1], derived);
    });
  };
}
