import { ProcessingError } from '../model/errors.ts';
import type { Operator, Step } from './step.ts';
import { refusePromise, type UserFunction } from './user-function.ts';

/** One way out of a split. `outlet` is the name of the child that takes the records; without a predicate it takes all. */
export interface Branch {
  readonly outlet: string;
  readonly predicate: UserFunction<boolean> | undefined;
}

/**
 * Hands each record to the first branch that matches, and to no other. An outlet may be absent where a part of the graph runs by itself: its
 * branch still takes its records, which are dropped there.
 */
export function branch(node: string, branches: readonly Branch[]): Operator {
  return (_forward, children) => {
    const ways = branches.map(({ outlet, predicate }) => ({ predicate, step: children.get(outlet) ?? drop }));
    return (key, value, context) => {
      for (let i = 0; i < ways.length; i++) {
        const { predicate, step } = ways[i]!;
        let answer: unknown = true;
        if (predicate !== undefined) {
          try {
            answer = predicate(value, key, context);
          } catch (error) {
            throw new ProcessingError(node, error);
          }
          if (answer === false) continue;
          if (answer !== true) {
            refusePromise(node, answer);
            if (!answer) continue;
          }
        }
        step(key, value, context);
        return;
      }
    };
  };
}

const drop: Step = () => undefined;
