import { ProcessingError } from '../model/errors.ts';
import type { RecordContext } from '../model/record.ts';
import type { Operator } from './step.ts';
import { refusePromise, type UserFunction } from './user-function.ts';

/** Calls a function for its side effect, and passes the record on unchanged. */
export function peek(node: string, action: UserFunction<unknown>): Operator {
  return (forward) => (key, value, context) => {
    run(node, action, key, value, context);
    forward(key, value, context);
  };
}

/** Calls a function for its side effect, and ends there. */
export function foreach(node: string, action: UserFunction<unknown>): Operator {
  return () => (key, value, context) => run(node, action, key, value, context);
}

function run(node: string, action: UserFunction<unknown>, key: unknown, value: unknown, context: RecordContext): void {
  let result: unknown;
  try {
    result = action(value, key, context);
  } catch (error) {
    throw new ProcessingError(node, error);
  }
  if (result !== undefined) refusePromise(node, result);
}
