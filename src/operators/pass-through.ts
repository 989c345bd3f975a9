import type { Operator } from './step.ts';

/** A node that is there for its name and its connections: merges, and the outlets of a split. Costs nothing per record. */
export const passThrough: Operator = (forward) => forward;
