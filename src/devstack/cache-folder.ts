import { randomBytes } from 'node:crypto';
import { mkdir, rename, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
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

function ignoreAbsent(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error;
}
