import { setImmediate as immediate } from 'node:timers/promises';

/** Lets the event loop run once: sockets are read and timers fire before it resolves. */
export async function eventLoopTurn(): Promise<void> {
  await immediate();
}
