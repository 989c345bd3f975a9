import { TidemarkError } from '../model/errors.ts';

/** Something about the development stack that its user can mend; the message says how. */
export class StackError extends TidemarkError {
  readonly code = 'STACK';
}
