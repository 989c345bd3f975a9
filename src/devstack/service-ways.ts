import { classArchiveArguments, makeClassArchive } from './class-archive.ts';
import type { DockerEngine } from './docker-engine.ts';
import { startKafkaInDocker, startPostgresInDocker, startRegistryInDocker } from './docker-services.ts';
import type { Environment } from './environment.ts';
import type { Lookup } from './java.ts';
import { startLocalKafka, stopLocalKafka } from './local-kafka.ts';
import { startLocalPostgres, stopLocalPostgres } from './local-postgres.ts';
import { startLocalRegistry, stopLocalRegistry } from './local-registry.ts';
import type { ProcessIdentity } from './process-identity.ts';
import type { StartContext, StartedService } from './service-start.ts';
import type { ServiceName } from './stack-state.ts';

/** How one kind of service is started and stopped on this machine, without Docker and in it. */
export interface ServiceWays {
  readonly title: string;
  startLocally(environment: Environment, context: StartContext): Promise<Lookup<StartedService>>;
  stopLocally(identity: ProcessIdentity): Promise<void>;
  /** The signal by which a process is ended at once when there is no time to wait, at the end of the process that owns it. */
  readonly lastSignal: NodeJS.Signals;
  startInDocker(engine: DockerEngine, context: StartContext): Promise<StartedService>;
}

export const serviceWays: Readonly<Record<ServiceName, ServiceWays>> = {
  kafka: {
    title: 'Kafka',
    startLocally: async (environment, context) => {
      const lookup = await environment.localKafka(context.onProgress);
      if ('missing' in lookup) return lookup;
      const { java, jars } = lookup.found;
      await makeClassArchive(java, jars, {
        directory: `${context.directory}.training`,
        onProgress: context.onProgress,
        onSpawn: (identity) => context.onProcess(identity),
      });
      context.onProgress(`Starting Kafka on Java ${java.version}`);
      const kafka = await startLocalKafka({
        directory: context.directory,
        java,
        jars,
        jvmArguments: await classArchiveArguments(java, jars),
        onSpawn: (identity) => context.onProcess(identity),
        ...(context.preferredPort === undefined ? {} : { preferredPort: context.preferredPort }),
      });
      return { found: { address: kafka.brokers, port: kafka.port, what: `a local broker on Java ${java.version}`, control: kafka } };
    },
    stopLocally: stopLocalKafka,
    lastSignal: 'SIGKILL',
    startInDocker: startKafkaInDocker,
  },
  postgres: {
    title: 'Postgres',
    startLocally: async (environment, context) => {
      const lookup = await environment.localPostgres(context.onProgress);
      if ('missing' in lookup) return lookup;
      const { binaries, user } = lookup.found;
      context.onProgress(`Starting ${binaries.version}${user === undefined ? '' : ` as user ${user.name}`}`);
      const postgres = await startLocalPostgres({
        directory: context.directory,
        binaries,
        user,
        ephemeral: context.ephemeral,
        onSpawn: (identity) => context.onProcess(identity),
        ...(context.preferredPort === undefined ? {} : { preferredPort: context.preferredPort }),
      });
      return {
        found: { address: postgres.url, port: postgres.port, what: `${binaries.version} from ${binaries.origin}`, control: postgres },
      };
    },
    stopLocally: stopLocalPostgres,
    lastSignal: 'SIGQUIT',
    startInDocker: startPostgresInDocker,
  },
  registry: {
    title: 'Schema registry',
    startLocally: async (environment, context) => {
      const lookup = await environment.localRegistry(context.onProgress);
      if ('missing' in lookup) return lookup;
      context.onProgress(`Starting the schema registry on Java ${lookup.found.java.version}`);
      const registry = await startLocalRegistry({
        ...lookup.found,
        directory: context.directory,
        onSpawn: (identity) => context.onProcess(identity),
        ...(context.preferredPort === undefined ? {} : { preferredPort: context.preferredPort }),
      });
      return { found: { address: registry.url, port: registry.port, what: `a local Apicurio on Java ${lookup.found.java.version}` } };
    },
    stopLocally: stopLocalRegistry,
    lastSignal: 'SIGKILL',
    startInDocker: startRegistryInDocker,
  },
};
