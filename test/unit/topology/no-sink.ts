import type { Sink } from '../../../src/sink/port.ts';

/** A sink that is never opened. */
export function noSink(kind = 'postgres'): Sink<unknown, unknown> {
  return {
    kind,
    mode: 'exactly-once',
    guarantee: 'effectively once (position and key in the transaction)',
    maxBatchRecords: 500,
    open: () => Promise.reject(new Error('it is never opened')),
  };
}
