import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { classArchiveArguments } from '../../src/devstack/class-archive.ts';
import { endAtExit, removeFolder } from '../../src/devstack/ephemeral-run.ts';
import { findJava } from '../../src/devstack/java.ts';
import { kafkaJars } from '../../src/devstack/kafka-jars.ts';
import { startLocalKafka, type LocalKafka, type LocalKafkaOptions } from '../../src/devstack/local-kafka.ts';
import { startLocalPostgres, type LocalPostgres } from '../../src/devstack/local-postgres.ts';
import { findPostgres, postgresUser } from '../../src/devstack/postgres-binaries.ts';
import { identifySelf } from '../../src/devstack/process-identity.ts';
import { serviceWays } from '../../src/devstack/service-ways.ts';
import { StackBook, type ServiceName } from '../../src/devstack/stack-state.ts';

/**
 * A broker for one test alone, to be killed, paused and restarted. `close()` ends it and removes its data; should the test's process die
 * before that, the next run does.
 */
export async function startBroker(
  options: Pick<LocalKafkaOptions, 'proxied' | 'secured' | 'settings' | 'heapMegabytes'> = {},
): Promise<LocalKafka & { readonly jars: string; close(): Promise<void> }> {
  const java = await findJava(process.env);
  if ('missing' in java) throw new Error(java.missing);
  const jars = await kafkaJars();
  const jvmArguments = await classArchiveArguments(java.found, jars);
  const { value, close } = await ownRun(
    'kafka',
    async (directory, onSpawn) =>
      await startLocalKafka({ ...options, directory, java: java.found, jars, jvmArguments, onSpawn, sessionTimeoutMs: 1_500 }),
  );
  return { ...value, jars, close };
}

/** A database server for one test alone, to be killed, paused and restarted. */
export async function startDatabase(): Promise<LocalPostgres & { close(): Promise<void> }> {
  const user = await postgresUser();
  if ('missing' in user) throw new Error(user.missing);
  const binaries = await findPostgres(process.env, user.found);
  if ('missing' in binaries) throw new Error(binaries.missing);
  const { value, close } = await ownRun(
    'postgres',
    async (directory, onSpawn) =>
      await startLocalPostgres({ directory, binaries: binaries.found, user: user.found, onSpawn, ephemeral: true }),
  );
  return { ...value, close };
}

async function ownRun<T>(
  name: ServiceName,
  start: (directory: string, onSpawn: LocalKafkaOptions['onSpawn'] & {}) => Promise<T>,
): Promise<{ readonly value: T; readonly close: () => Promise<void> }> {
  const owner = identifySelf();
  const book = new StackBook(join(process.cwd(), '.tidemark', `run-${process.pid}-${randomBytes(4).toString('hex')}`), owner);
  const forget = endAtExit(book);
  const close = async (): Promise<void> => {
    const record = book.get(name);
    if (record?.process !== undefined) await serviceWays[name].stopLocally(record.process);
    removeFolder(book.directory);
    forget();
  };
  try {
    const value = await start(join(book.directory, name), (process) => book.set(name, { how: 'local', why: 'a test of its own', process }));
    return { value, close };
  } catch (error) {
    await close();
    throw error;
  }
}
