import { TopologyError } from '../model/errors.ts';

/**
 * Refuses what is not a function, and async functions while their line is still in the stack trace. (Functions that return a promise without
 * being declared async are found when they run.)
 */
export function requireStepFunction(step: string, given: unknown): void {
  if (typeof given !== 'function') {
    const got = given === null ? 'null' : typeof given;
    throw new TopologyError(`step '${step}' needs a function, but got ${got}`);
  }
  const kind = Object.prototype.toString.call(given);
  if (kind === '[object AsyncFunction]' || kind === '[object AsyncGeneratorFunction]') {
    throw new TopologyError(
      `step '${step}' was given an async function, but steps are synchronous: its promise would be taken for the result. Do what needs to wait behind a sink`,
    );
  }
}
