import { createHash, randomBytes } from 'node:crypto';
import { chmod, chown, mkdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { freePort, isFree } from './port.ts';
import { canReach, type PostgresBinaries } from './postgres-binaries.ts';
import { signal, stopProcess, waitUntilGone, type ProcessIdentity } from './process-identity.ts';
import { run, ServerStartError, spawnServer, waitForLog, type UnixUser } from './server-process.ts';
import { StackError } from './stack-error.ts';

export interface LocalPostgresOptions {
  /** Data, password and log of this server; made if absent, continued if a server was here before. */
  readonly directory: string;
  readonly binaries: PostgresBinaries;
  /** Whom the server runs as; undefined for the user of this process. */
  readonly user: UnixUser | undefined;
  /** Called with each process as soon as there is one: first what prepares the data, then the server, before it is ready. */
  readonly onSpawn?: (identity: ProcessIdentity) => void;
  /** Skips the flush to disk of the first initialisation, for data that is thrown away anyway. The server itself always flushes. */
  readonly ephemeral?: boolean;
  /** The port to use again, if it is still free. */
  readonly preferredPort?: number;
}

export interface LocalPostgres {
  /** With the superuser's password; the database is `postgres`. */
  readonly url: string;
  readonly port: number;
  identity(): ProcessIdentity;
  /** SIGKILL to the server; its children end by themselves. */
  kill(): Promise<void>;
  /** SIGSTOP to the server: it takes no new connections, open ones go on. */
  pause(): void;
  /** SIGCONT. */
  resume(): void;
  /** Starts the server again on the same port and data, after `kill()` or `stop()`. */
  restart(): Promise<void>;
  /** Ends open sessions, rolls their transactions back, and stops (50 ms). Data stays. */
  stop(): Promise<void>;
}

const startDeadlineMs = 60_000;

/** Starts PostgreSQL on loopback and returns once it takes connections. */
export async function startLocalPostgres(options: LocalPostgresOptions): Promise<LocalPostgres> {
  const base = await placeForData(options.directory, options.user);
  const password = await initialiseOnce(base, options);
  for (let attempt = 1; ; attempt++) {
    const preferred = options.preferredPort;
    const port = attempt === 1 && preferred !== undefined && (await isFree(preferred)) ? preferred : await freePort();
    try {
      return await startOnPort(options, base, port, password);
    } catch (error) {
      if (attempt < 5 && error instanceof ServerStartError && error.portTaken) continue;
      throw error;
    }
  }
}

async function startOnPort(options: LocalPostgresOptions, base: string, port: number, password: string): Promise<LocalPostgres> {
  const data = join(base, 'data');
  const logFile = join(base, 'postgres.log');
  let identity: ProcessIdentity | undefined;
  const spawnOnce = async (): Promise<void> => {
    const fromByte = await stat(logFile).then(
      (file) => file.size,
      () => 0,
    );
    const settings = {
      listen_addresses: '127.0.0.1',
      port: String(port),
      unix_socket_directories: '',
      max_connections: '200',
      log_checkpoints: 'off',
    };
    identity = await spawnServer(
      {
        file: options.binaries.postgres,
        args: ['-D', data, ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])],
        cwd: base,
        user: options.user,
        env: { ...process.env, LC_ALL: 'C' },
        logFile,
      },
      (spawned) => options.onSpawn?.(spawned),
    );
    try {
      await waitForLog(
        { name: 'PostgreSQL', identity, logFile, fromByte },
        /database system is ready to accept connections/,
        startDeadlineMs,
      );
    } catch (error) {
      await kill(identity);
      throw error;
    }
  };
  const spawnAndWait = async (): Promise<void> => {
    const end = performance.now() + startDeadlineMs;
    for (;;) {
      try {
        return await spawnOnce();
      } catch (error) {
        // The children of a killed server see its end at once when idle, but a busy one may take its time.
        const childrenLeft = error instanceof ServerStartError && /pre-existing shared memory block/.test(error.log);
        if (!childrenLeft || performance.now() > end) throw error;
        await delay(200);
      }
    }
  };
  await spawnAndWait();
  const current = (): ProcessIdentity => {
    if (identity === undefined) throw new Error('PostgreSQL has not been started.');
    return identity;
  };
  return {
    url: `postgres://postgres:${password}@127.0.0.1:${port}/postgres`,
    port,
    identity: current,
    kill: async () => await kill(current()),
    pause: () => signal(current(), 'SIGSTOP'),
    resume: () => signal(current(), 'SIGCONT'),
    restart: async () => {
      if (!(await waitUntilGone(current(), 0))) throw new StackError('PostgreSQL still runs: kill() or stop() it before restart().');
      await spawnAndWait();
    },
    stop: async () => await stopLocalPostgres(current()),
  };
}

/** Also ends a server that a process that is no more has started. */
export async function stopLocalPostgres(identity: ProcessIdentity): Promise<void> {
  signal(identity, 'SIGCONT');
  await stopProcess(identity, [
    // Fast shutdown, then immediate shutdown, which also frees the shared memory.
    { signal: 'SIGINT', deadlineMs: 15_000 },
    { signal: 'SIGQUIT', deadlineMs: 6_000 },
    { signal: 'SIGKILL', deadlineMs: 10_000 },
  ]);
}

async function kill(identity: ProcessIdentity): Promise<void> {
  await stopProcess(identity, [{ signal: 'SIGKILL', deadlineMs: 10_000 }]);
}

/** Where data lies that the server's user could not reach in the working directory. */
export const placeOutside = '/var/lib/tidemark';

/** The directory itself, or, where the server's user cannot reach it (a checkout under /root), one that it can, with a link to it. */
async function placeForData(directory: string, user: UnixUser | undefined): Promise<string> {
  let base = resolve(directory);
  if (!(await canReach(base, user))) {
    base = join(placeOutside, createHash('sha256').update(base).digest('hex').slice(0, 16));
    await mkdir(resolve(directory, '..'), { recursive: true });
    await symlink(base, directory).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
  }
  await mkdir(base, { recursive: true });
  if (user !== undefined) await chown(base, user.uid, user.gid);
  await chmod(base, 0o700);
  return base;
}

/** Makes the data directory unless it is there. Under another name first, so that a half-made one is never taken for a whole one. */
async function initialiseOnce(base: string, options: LocalPostgresOptions): Promise<string> {
  const data = join(base, 'data');
  const passwordFile = join(base, 'password');
  const ready = await stat(join(data, 'PG_VERSION')).then(
    () => true,
    () => false,
  );
  if (ready) return (await readFile(passwordFile, 'utf8')).trim();
  const fresh = join(base, 'data.new');
  await rm(fresh, { recursive: true, force: true });
  const password = randomBytes(12).toString('hex');
  await writeFile(passwordFile, `${password}\n`, { mode: 0o600 });
  if (options.user !== undefined) await chown(passwordFile, options.user.uid, options.user.gid);
  await run(
    options.binaries.initdb,
    [
      '-D',
      fresh,
      '--username=postgres',
      '--auth=scram-sha-256',
      `--pwfile=${passwordFile}`,
      '--encoding=UTF8',
      '--locale=C',
      ...(options.ephemeral === true ? ['--no-sync'] : []),
    ],
    { deadlineMs: 120_000, cwd: base, user: options.user, env: { ...process.env, LC_ALL: 'C' }, onSpawn: options.onSpawn },
  );
  await rename(fresh, data);
  return password;
}
