import type { Environment } from './environment.ts';
import { isRunning } from './process-identity.ts';
import { serviceWays } from './service-ways.ts';
import type { ServiceName, ServiceRecord } from './stack-state.ts';
import { StackError } from './stack-error.ts';

export async function recordRuns(record: ServiceRecord, environment: Environment): Promise<boolean> {
  if (record.process !== undefined) return isRunning(record.process);
  if (record.container === undefined) return false;
  const docker = await environment.docker();
  return 'found' in docker && (await docker.found.isRunning(record.container));
}

/** Ends what the record names, if it still runs, and nothing else. */
export async function stopRecord(name: ServiceName, record: ServiceRecord, environment: Environment): Promise<void> {
  if (record.process !== undefined) await serviceWays[name].stopLocally(record.process);
  if (record.container !== undefined) {
    const docker = await environment.docker();
    if ('missing' in docker) {
      throw new StackError(
        `${serviceWays[name].title} runs in the container ${record.container.slice(0, 12)}, which cannot be stopped now: ${docker.missing}.`,
      );
    }
    await docker.found.remove(record.container);
  }
}
