import type { Lookup } from './java.ts';
import type { StartContext, StartedService } from './service-ways.ts';

export interface DockerEngine {
  readonly version: string;
  startKafka(context: StartContext): Promise<StartedService>;
  startPostgres(context: StartContext): Promise<StartedService>;
  startRegistry(context: StartContext): Promise<StartedService>;
  isRunning(container: string): Promise<boolean>;
  remove(container: string): Promise<void>;
}

export async function connectDocker(): Promise<Lookup<DockerEngine>> {
  return { missing: 'no Docker engine answers' };
}
