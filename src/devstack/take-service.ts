import { join } from 'node:path';
import type { DockerEngine } from './docker-engine.ts';
import type { Environment } from './environment.ts';
import { addressVariables } from './given-address.ts';
import type { Lookup } from './java.ts';
import type { Progress } from './kafka-jars.ts';
import { recordRuns, stopRecord } from './service-record.ts';
import type { ServiceControl, StartContext, StartedService } from './service-start.ts';
import { serviceWays } from './service-ways.ts';
import type { ServiceName, ServiceRecord, StackBook } from './stack-state.ts';
import { StackError } from './stack-error.ts';

export type Source = 'given' | 'docker' | 'local';

export interface Attempt {
  readonly environment: Environment;
  readonly book: StackBook;
  readonly sources: readonly Source[];
  readonly ephemeral: boolean;
  readonly onProgress: Progress;
  /** Looked for once, however many services ask. */
  readonly docker: () => Promise<Lookup<DockerEngine>>;
}

export interface TakenService {
  readonly address: string;
  readonly how: Source;
  readonly why: string;
  readonly startedHere: boolean;
  readonly control?: ServiceControl;
}

/** A service could be had in none of the ways that were tried. */
export class ServiceUnavailableError extends StackError {
  readonly service: ServiceName;
  /** One sentence for each way. */
  readonly reasons: readonly string[];

  constructor(service: ServiceName, reasons: readonly string[]) {
    super(`${serviceWays[service].title}: ${reasons.join(' ')}`);
    this.service = service;
    this.reasons = reasons;
  }
}

/** Finds the service running, or starts it in Docker or else locally. */
export async function takeService(name: ServiceName, attempt: Attempt): Promise<TakenService> {
  const { book, environment, onProgress } = attempt;
  const title = serviceWays[name].title;
  const record = book.get(name);
  if (record !== undefined) {
    const runs = await recordRuns(record, environment);
    if (runs && record.address !== undefined) {
      onProgress(`${title} runs already`);
      return { address: record.address, how: record.how, why: record.why, startedHere: false };
    }
    onProgress(
      runs
        ? `${title} was being started by a process that is no more: starting it anew`
        : `${title} has ended since it was started: starting it anew`,
    );
    await stopRecord(name, record, environment);
    book.set(name, undefined);
  }
  const reasons: string[] = [];
  if (attempt.sources.includes('given')) reasons.push(`${addressVariables[name]} is not set.`);
  if (attempt.sources.includes('docker')) {
    const engine = await attempt.docker();
    if ('missing' in engine) {
      reasons.push(`Docker: ${engine.missing}.`);
    } else {
      const result = await tryWay(name, 'docker', `Docker ${engine.found.version} answers`, attempt, async (context) => ({
        found: await serviceWays[name].startInDocker(engine.found, context),
      }));
      if ('found' in result) return result.found;
      reasons.push(`Docker: ${result.missing}`);
    }
  }
  if (attempt.sources.includes('local')) {
    const why = reasons.length === 0 ? 'asked for' : reasons.join(' ');
    const result = await tryWay(name, 'local', why, attempt, async (context) => await serviceWays[name].startLocally(environment, context));
    if ('found' in result) return result.found;
    reasons.push(`Local: ${result.missing}.`);
  }
  throw new ServiceUnavailableError(name, reasons);
}

/** A way that is there but fails is left as clean as one that is not there. */
async function tryWay(
  name: ServiceName,
  how: 'docker' | 'local',
  because: string,
  attempt: Attempt,
  start: (context: StartContext) => Promise<Lookup<StartedService>>,
): Promise<Lookup<TakenService>> {
  const { book, environment, onProgress } = attempt;
  const unfinished = (part: Partial<ServiceRecord>): void => book.set(name, { how, why: because, ...part });
  const context: StartContext = {
    directory: join(book.directory, name),
    ephemeral: attempt.ephemeral,
    preferredPort: book.port(name),
    onProgress,
    onProcess: (process) => unfinished({ process }),
    onContainer: (container) => unfinished({ container }),
  };
  const begin = performance.now();
  try {
    const result = await start(context);
    if ('missing' in result) return result;
    const { address, port, what, control } = result.found;
    const why = `${what} (${because})`;
    const now = book.get(name);
    book.set(name, { ...now, how, why, address });
    book.setPort(name, port);
    onProgress(`${serviceWays[name].title} is ready after ${((performance.now() - begin) / 1000).toFixed(1)} s: ${what}`);
    return {
      found: { address, how, why, startedHere: true, ...(control === undefined ? {} : { control: recorded(name, control, attempt) }) },
    };
  } catch (error) {
    const record = book.get(name);
    if (record !== undefined) await stopRecord(name, record, environment);
    book.set(name, undefined);
    return { missing: `it did not start. ${error instanceof Error ? error.message : String(error)}` };
  }
}

/** The process changes with each restart, and its entry in the book with it; the address stays. */
function recorded(name: ServiceName, control: ServiceControl, { book }: Attempt): ServiceControl {
  const address = book.get(name)?.address;
  return {
    kill: async () => await control.kill(),
    pause: () => control.pause(),
    resume: () => control.resume(),
    restart: async () => {
      await control.restart();
      const record = book.get(name);
      if (record !== undefined && address !== undefined) book.set(name, { ...record, address });
    },
  };
}
