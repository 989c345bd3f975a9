import { ProcessingError } from '../model/errors.ts';
import type { Operator } from './step.ts';
import { refusePromise, type UserFunction } from './user-function.ts';

/** Replaces the key. */
export function selectKey(node: string, selector: UserFunction<unknown>): Operator {
  return (forward) => (key, value, context) => {
    let selected: unknown;
    try {
      selected = selector(value, key, context);
    } catch (error) {
      throw new ProcessingError(node, error);
    }
    refusePromise(node, selected);
    forward(selected, value, context);
  };
}
