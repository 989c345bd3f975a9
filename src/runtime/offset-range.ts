import type { ConsumerEvent } from '../kafka/port.ts';
import { FatalError } from '../model/errors.ts';
import type { Log } from '../ops/log.ts';

export type OutOfRange = Extract<ConsumerEvent, { type: 'out-of-range' }>;

/** What to do when a position lies outside of the log: records were deleted, or the log was cut. */
export type OffsetOutOfRange = 'error' | 'earliest' | 'latest';

/** Where to go on. Throws FatalError where the policy is to stop. */
export function offsetInRange({ topic, partition, position, logStart, logEnd }: OutOfRange, policy: OffsetOutOfRange, log: Log): bigint {
  if (policy === 'error') {
    throw new FatalError(
      `the position ${position} of ${topic}-${partition} lies outside of its log (${logStart} to ${logEnd}): records were deleted before they were ` +
        "processed, or the log was cut. Set the group's offset yourself, or set offsetOutOfRange to 'earliest' or 'latest' to go on with a gap",
    );
  }
  const offset = policy === 'earliest' ? logStart : logEnd;
  log.warn({ topic, partition, position: `${position}`, log: `${logStart} to ${logEnd}`, goesOnAt: `${offset}` }, 'position out of range');
  return offset;
}
