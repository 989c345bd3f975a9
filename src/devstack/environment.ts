import { connectDocker, type DockerEngine } from './docker-engine.ts';
import { findJava, type Java, type Lookup } from './java.ts';
import { kafkaJars, type Progress } from './kafka-jars.ts';
import { findPostgres, postgresUser, type PostgresBinaries } from './postgres-binaries.ts';
import { registryProgram } from './registry-program.ts';
import type { UnixUser } from './server-process.ts';

/** What this machine offers. Tests give another one. */
export interface Environment {
  readonly variables: NodeJS.ProcessEnv;
  docker(): Promise<Lookup<DockerEngine>>;
  localKafka(onProgress: Progress): Promise<Lookup<{ readonly java: Java; readonly jars: string }>>;
  localPostgres(onProgress: Progress): Promise<Lookup<{ readonly binaries: PostgresBinaries; readonly user: UnixUser | undefined }>>;
  localRegistry(onProgress: Progress): Promise<Lookup<{ readonly java: Java; readonly jar: string }>>;
}

export function systemEnvironment(variables: NodeJS.ProcessEnv = process.env): Environment {
  return {
    variables,
    docker: async () => await connectDocker(),
    localKafka: async (onProgress) => {
      const java = await findJava(variables);
      if ('missing' in java) return java;
      return await orMissing(async () => ({ java: java.found, jars: await kafkaJars({ variables, onProgress }) }));
    },
    localPostgres: async () => {
      const user = await postgresUser();
      if ('missing' in user) return user;
      const binaries = await findPostgres(variables, user.found);
      return 'missing' in binaries ? binaries : { found: { binaries: binaries.found, user: user.found } };
    },
    localRegistry: async (onProgress) => {
      const java = await findJava(variables);
      if ('missing' in java) return java;
      return await orMissing(async () => ({ java: java.found, jar: await registryProgram({ variables, onProgress }) }));
    },
  };
}

async function orMissing<T>(look: () => Promise<T>): Promise<Lookup<T>> {
  try {
    return { found: await look() };
  } catch (error) {
    return { missing: error instanceof Error ? error.message : String(error) };
  }
}
