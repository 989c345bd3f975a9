import { ProcessingError } from '../model/errors.ts';
import type { Operator } from './step.ts';
import { refusePromise, type UserFunction } from './user-function.ts';

/** Passes on the records for which the predicate's answer is `keep`. */
export function filter(node: string, predicate: UserFunction<boolean>, keep: boolean): Operator {
  return (forward) => (key, value, context) => {
    let answer: boolean;
    try {
      answer = predicate(value, key, context);
    } catch (error) {
      throw new ProcessingError(node, error);
    }
    if (answer !== true && answer !== false) {
      refusePromise(node, answer);
      answer = Boolean(answer);
    }
    if (answer === keep) forward(key, value, context);
  };
}
