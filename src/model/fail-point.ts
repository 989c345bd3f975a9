/**
 * Named places in the commit protocol where a test, a simulation or the laboratory may stop the process, wait or throw.
 * Each stands directly after the step that it names and before the next one.
 */
export type FailPointName =
  | 'after-poll'
  | 'mid-processing'
  | 'before-flush'
  | 'after-flush'
  | 'after-send-offsets'
  | 'end-txn-sent'
  | 'after-end-txn'
  | 'sink-after-poll'
  | 'sink-before-begin'
  | 'sink-after-fence'
  | 'sink-after-keys'
  | 'sink-after-effects'
  | 'sink-before-commit'
  | 'sink-commit-sent'
  | 'sink-after-commit'
  | 'sink-after-offsets';

/** Called at each fail point that is reached; what it throws is an error of that step. Undefined in production. */
export type FailPoints = (name: FailPointName) => void | Promise<void>;
