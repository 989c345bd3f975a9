import { randomBytes } from 'node:crypto';
import { link, mkdir, readdir, readFile, rename, unlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ConfigurationError } from '../model/errors.ts';
import { isAlive, processIdentity, type ProcessIdentity } from './process-identity.ts';

export interface InstanceLockOptions {
  readonly stateDirectory: string;
  readonly applicationId: string;
  /** Without one, the first free slot's is taken. */
  readonly instanceId: string | undefined;
}

/** What stands in a lock file. */
interface LockOwner extends ProcessIdentity {
  readonly token: string;
  readonly released: boolean;
}

const LOCK_FILE = /^lock-(\d+)$/;
const ID_FILE = 'instance-id';
/** More instances of one application on one machine are a mistake in the configuration. */
const MAX_SLOTS = 1000;

export function defaultStateDirectory(): string {
  return join(tmpdir(), 'tidemark');
}

/**
 * The right to be one instance of an application, held in `<stateDirectory>/<applicationId>/<slot>`. It is a file that names its owner, so the
 * lock of a process that died can be told from that of one which is merely stopped: only the former is taken over.
 *
 * Lock files are numbered, and whoever has the highest number is the owner. A new owner does not remove the old file but links the next number,
 * which the file system lets only one do; and the file with the highest number is never removed, not even on release. So there is no
 * moment at which two processes that both saw a dead owner could both succeed it.
 */
export class InstanceLock {
  readonly directory: string;
  readonly instanceId: string;
  readonly #file: string;
  readonly #owner: LockOwner;

  private constructor(directory: string, instanceId: string, file: string, owner: LockOwner) {
    this.directory = directory;
    this.instanceId = instanceId;
    this.#file = file;
    this.#owner = owner;
  }

  /** Throws ConfigurationError when the named instance runs already, or the state directory cannot be used. */
  static async acquire({ stateDirectory, applicationId, instanceId }: InstanceLockOptions): Promise<InstanceLock> {
    const base = join(stateDirectory, applicationId);
    const owner: LockOwner = { ...processIdentity(), token: randomBytes(12).toString('hex'), released: false };
    try {
      if (instanceId !== undefined) return await InstanceLock.#acquireNamed(base, instanceId, owner);
      return await InstanceLock.#acquireSlot(base, applicationId, owner);
    } catch (error) {
      if (error instanceof ConfigurationError) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      throw new ConfigurationError(
        `option 'stateDirectory': '${base}' cannot be used (${reason}). Name a directory that this process may write to, on a file system with hard links.`,
        { cause: error },
      );
    }
  }

  static async #acquireNamed(base: string, instanceId: string, owner: LockOwner): Promise<InstanceLock> {
    const directory = join(base, `instance-${instanceId}`);
    const result = await take(directory, owner);
    if (typeof result === 'string') return new InstanceLock(directory, instanceId, result, owner);
    const elsewhere = result.host === owner.host ? '' : ` on host '${result.host}'. If that host is gone, delete the directory`;
    throw new ConfigurationError(
      `option 'instanceId': the instance '${instanceId}' runs already, in process ${result.pid}${elsewhere} (lock in ${directory}). Give each process an instanceId of its own.`,
    );
  }

  static async #acquireSlot(base: string, applicationId: string, owner: LockOwner): Promise<InstanceLock> {
    for (let slot = 0; slot < MAX_SLOTS; slot++) {
      const directory = join(base, `slot-${slot}`);
      const result = await take(directory, owner);
      if (typeof result === 'string') return new InstanceLock(directory, await stableId(directory), result, owner);
    }
    throw new ConfigurationError(
      `application '${applicationId}' has ${MAX_SLOTS} instances in '${base}' already. Is the state directory shared?`,
    );
  }

  /** Whether this process is still the owner. It is not when somebody has deleted the directory. */
  async isHeld(): Promise<boolean> {
    return (await readOwner(this.#file))?.token === this.#owner.token;
  }

  /** Lets the next one take the slot. */
  async release(): Promise<void> {
    if (!(await this.isHeld())) return;
    const draft = `${this.#file}.${this.#owner.token}`;
    await writeFile(draft, JSON.stringify({ ...this.#owner, released: true }));
    await rename(draft, this.#file);
  }
}

/** The path of the lock file that is ours now, or the owner who lives. */
async function take(directory: string, owner: LockOwner): Promise<string | LockOwner> {
  await mkdir(directory, { recursive: true });
  for (;;) {
    const highest = await highestNumber(directory);
    if (highest > 0) {
      const current = await readOwner(join(directory, `lock-${highest}`));
      // Undefined: a successor has removed it in this moment.
      if (current === undefined) continue;
      if (!current.released && isAlive(current)) return current;
    }
    const file = join(directory, `lock-${highest + 1}`);
    if (!(await linkNew(file, owner))) continue;
    // Somebody who saw an older state may have linked a number whose file was removed before.
    if ((await highestNumber(directory)) === highest + 1) {
      await removeOlder(directory, highest + 1);
      return file;
    }
    await unlink(file);
  }
}

/** Creates the file with its content in one step; false when it exists. */
async function linkNew(file: string, owner: LockOwner): Promise<boolean> {
  const draft = `${file}.${owner.token}`;
  await writeFile(draft, JSON.stringify(owner));
  try {
    await link(draft, file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  } finally {
    await unlink(draft);
  }
}

async function highestNumber(directory: string): Promise<number> {
  return Math.max(0, ...(await lockNumbers(directory)));
}

async function lockNumbers(directory: string): Promise<number[]> {
  const names = await readdir(directory);
  return names.flatMap((name) => {
    const number = LOCK_FILE.exec(name)?.[1];
    return number === undefined ? [] : [Number(number)];
  });
}

async function removeOlder(directory: string, own: number): Promise<void> {
  for (const number of await lockNumbers(directory)) {
    if (number < own) await removeIfThere(join(directory, `lock-${number}`));
  }
}

async function removeIfThere(file: string): Promise<void> {
  try {
    await unlink(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

async function readOwner(file: string): Promise<LockOwner | undefined> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as LockOwner;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Random, so that two machines do not collide, and the same as long as the directory exists. Only the lock's owner comes here. */
async function stableId(directory: string): Promise<string> {
  const file = join(directory, ID_FILE);
  try {
    const known = (await readFile(file, 'utf8')).trim();
    if (known !== '') return known;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  const id = randomBytes(6).toString('hex');
  const draft = `${file}.${id}`;
  await writeFile(draft, id);
  await rename(draft, file);
  return id;
}
