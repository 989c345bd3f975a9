import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { link, mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { identifySelf, isRunning, type ProcessIdentity } from './process-identity.ts';
import { StackError } from './stack-error.ts';

export type ServiceName = 'kafka' | 'postgres' | 'registry';
export const serviceNames: readonly ServiceName[] = ['kafka', 'postgres', 'registry'];

/** What is known of a service that a stack has started: enough to find it again and to stop it and nothing else. */
export interface ServiceRecord {
  readonly how: 'docker' | 'local';
  readonly why: string;
  /** Brokers or URL, once the service is ready. A record without one is of a start that has not ended, or never will. */
  readonly address?: string;
  readonly process?: ProcessIdentity;
  readonly container?: string;
}

export interface StackState {
  readonly version: 1;
  /** The process that an ephemeral stack lives for. */
  readonly owner?: ProcessIdentity;
  readonly services: { readonly [name in ServiceName]?: ServiceRecord };
  /** The ports of last time, to be used again where they are free. */
  readonly ports: { readonly [name in ServiceName]?: number };
}

/** The book of one stack: a file in its directory, rewritten as a whole at each change. */
export class StackBook {
  readonly directory: string;
  #state: StackState;

  constructor(directory: string, owner?: ProcessIdentity) {
    this.directory = directory;
    this.#state = readState(directory) ?? { version: 1, services: {}, ports: {}, ...(owner === undefined ? {} : { owner }) };
  }

  get owner(): ProcessIdentity | undefined {
    return this.#state.owner;
  }

  get(name: ServiceName): ServiceRecord | undefined {
    return this.#state.services[name];
  }

  set(name: ServiceName, record: ServiceRecord | undefined): void {
    const { [name]: _, ...others } = this.#state.services;
    this.#write({ ...this.#state, services: record === undefined ? others : { ...others, [name]: record } });
  }

  port(name: ServiceName): number | undefined {
    return this.#state.ports[name];
  }

  setPort(name: ServiceName, port: number): void {
    this.#write({ ...this.#state, ports: { ...this.#state.ports, [name]: port } });
  }

  /** Synchronous, so that nothing can come between the start of a process and its entry. */
  #write(state: StackState): void {
    this.#state = state;
    mkdirSync(this.directory, { recursive: true });
    const fresh = join(this.directory, `state.json.${process.pid}`);
    // Holds the database's password.
    writeFileSync(fresh, JSON.stringify(state, null, 2), { mode: 0o600 });
    renameSync(fresh, join(this.directory, 'state.json'));
  }
}

function readState(directory: string): StackState | undefined {
  let text: string;
  try {
    text = readFileSync(join(directory, 'state.json'), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  const state = JSON.parse(text) as StackState;
  if (state.version !== 1)
    throw new StackError(`${join(directory, 'state.json')} was written by another version of tidemark: stop that stack with it first.`);
  return state;
}

/**
 * Runs `body` while no other process starts or stops the stack of this folder. A lock whose holder has died is taken over.
 * Throws if the lock is not to be had within `deadlineMs`.
 */
export async function withStackLock<T>(
  home: string,
  deadlineMs: number,
  onWait: (holder: number) => void,
  body: () => Promise<T>,
): Promise<T> {
  await mkdir(home, { recursive: true });
  const lock = join(home, 'stack.lock');
  const me = identifySelf();
  const end = performance.now() + deadlineMs;
  let told = false;
  while (!(await takeLock(lock, me))) {
    const holder = readLock(lock);
    if (holder !== undefined && !isRunning(holder)) {
      await removeDeadLock(lock, holder);
      continue;
    }
    if (performance.now() > end) {
      throw new StackError(
        `Process ${holder?.pid ?? '?'} has been starting or stopping the stack in ${home} for more than ${deadlineMs / 1000} s.`,
      );
    }
    if (!told && holder !== undefined) onWait(holder.pid);
    told = true;
    await delay(100);
  }
  const release = (): void => rmSync(lock, { force: true });
  process.once('exit', release);
  try {
    return await body();
  } finally {
    process.removeListener('exit', release);
    release();
  }
}

async function takeLock(lock: string, me: ProcessIdentity): Promise<boolean> {
  // A link appears with its content, so that there is never a lock without a holder.
  const own = `${lock}.${randomBytes(4).toString('hex')}`;
  await writeFile(own, JSON.stringify(me));
  try {
    await link(own, lock);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  } finally {
    await rm(own, { force: true });
  }
}

/** Undefined if it has been released in between. */
function readLock(lock: string): ProcessIdentity | undefined {
  try {
    return JSON.parse(readFileSync(lock, 'utf8')) as ProcessIdentity;
  } catch {
    return undefined;
  }
}

/** Of several that find the same dead lock, one moves it away; whoever moved a living one by that puts it back. */
async function removeDeadLock(lock: string, dead: ProcessIdentity): Promise<void> {
  const aside = `${lock}.${randomBytes(4).toString('hex')}`;
  try {
    await rename(lock, aside);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  const moved = readLock(aside);
  if (moved !== undefined && (moved.pid !== dead.pid || moved.startedAt !== dead.startedAt)) await rename(aside, lock);
  await rm(aside, { force: true });
}
