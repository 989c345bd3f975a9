import { randomBytes } from 'node:crypto';
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { identify } from './process-identity.ts';
import { StackError } from './stack-error.ts';

/** Where downloads are kept for all checkouts of this user: `$XDG_CACHE_HOME/tidemark`, by default `~/.cache/tidemark`. */
export function cacheFolder(variables: NodeJS.ProcessEnv): string {
  const base = variables['XDG_CACHE_HOME'];
  return join(base !== undefined && base.startsWith('/') ? base : join(homedir(), '.cache'), 'tidemark');
}

/**
 * A folder that is either absent or complete. `build` fills a folder beside it, which then takes its name in one step; of two that do
 * so at once, one wins and the other's work is dropped. A folder that `isComplete` refuses (half deleted, say) is replaced.
 */
export async function folderMadeOnce(
  target: string,
  isComplete: (folder: string) => Promise<boolean>,
  build: (folder: string) => Promise<void>,
): Promise<string> {
  if (await isComplete(target)) return target;
  await mkdir(dirname(target), { recursive: true });
  await removeAbandoned(target);
  const fresh = `${target}.new-${process.pid}-${randomBytes(4).toString('hex')}`;
  await mkdir(fresh);
  try {
    await build(fresh);
    if (!(await isComplete(fresh))) throw new StackError(`What was fetched for ${target} is not complete.`);
    for (let attempt = 0; attempt < 5; attempt++) {
      try {
        await rename(fresh, target);
        return target;
      } catch (error) {
        const code = (error as NodeJS.ErrnoException).code;
        if (code !== 'ENOTEMPTY' && code !== 'EEXIST') throw error;
        if (await isComplete(target)) return target;
        await rename(target, `${fresh}-old${attempt}`).catch(ignoreAbsent);
        await rm(`${fresh}-old${attempt}`, { recursive: true, force: true });
      }
    }
    throw new StackError(`${target} is being replaced by somebody else again and again. Remove it and try once more.`);
  } finally {
    await rm(fresh, { recursive: true, force: true });
  }
}

/** What was being built by processes that are no more. */
async function removeAbandoned(target: string): Promise<void> {
  for (const name of await readdir(dirname(target))) {
    const builder = name.startsWith(`${basename(target)}.new-`) ? /^\d+/.exec(name.slice(basename(target).length + 5))?.[0] : undefined;
    if (builder === undefined || identify(Number(builder)) !== undefined) continue;
    await rm(join(dirname(target), name), { recursive: true, force: true });
  }
}

function ignoreAbsent(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error;
}
