import { createServer } from 'node:net';
import { StackError } from './stack-error.ts';

const lowest = 20_000;
const highest = 31_999;

/**
 * A port that nothing listens on. It lies below the range from which operating systems take the ports of outgoing connections (32768
 * on Linux, 49152 elsewhere): a client that dials a dead server's port may otherwise be given that very port, connect to itself, and
 * keep the server from coming back. Chosen at random, so that two stacks that start at once rarely meet; whoever loses tries again.
 */
export async function freePort(taken: ReadonlySet<number> = new Set()): Promise<number> {
  for (let attempt = 0; attempt < 200; attempt++) {
    const port = lowest + Math.floor(Math.random() * (highest - lowest + 1));
    if (!taken.has(port) && (await isFree(port))) return port;
  }
  throw new StackError(`No free port was found between ${lowest} and ${highest} on 127.0.0.1.`);
}

/** Several different free ports. */
export async function freePorts(count: number): Promise<number[]> {
  const ports = new Set<number>();
  while (ports.size < count) ports.add(await freePort(ports));
  return [...ports];
}

export async function isFree(port: number): Promise<boolean> {
  return await new Promise<boolean>((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => server.close(() => resolve(true)));
  });
}
