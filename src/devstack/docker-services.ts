import { randomBytes } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Client } from 'pg';
import type { ContainerSpec, DockerEngine } from './docker-engine.ts';
import { kafkaVersion } from './kafka-jars.ts';
import { containerVariables, kafkaSettings } from './kafka-settings.ts';
import { registryApiPath } from './local-registry.ts';
import { freePort, isFree } from './port.ts';
import { registryVersion } from './registry-program.ts';
import { ServerStartError } from './server-process.ts';
import type { StartContext, StartedService } from './service-start.ts';

const kafkaImage = `apache/kafka:${kafkaVersion}`;
const postgresImage = 'postgres:17';
const registryImage = `apicurio/apicurio-registry-mem:${registryVersion}`;
const startDeadlineMs = 120_000;

export async function startKafkaInDocker(engine: DockerEngine, context: StartContext): Promise<StartedService> {
  return await onSomePort(context, kafkaImage, async (port) => {
    // The image's own settings count for nothing once one setting is given: all are given.
    const settings = kafkaSettings({
      listeners: [
        { name: 'BROKER', protocol: 'PLAINTEXT', bind: ':9093', advertised: 'localhost:9093' },
        { name: 'CLIENT', protocol: 'PLAINTEXT', bind: ':9092', advertised: `127.0.0.1:${port}` },
      ],
      controller: 'localhost:9094',
      dataDirectory: '/var/lib/kafka/data',
      sessionTimeoutMs: 9_000,
    });
    const variables = { ...containerVariables(settings), KAFKA_HEAP_OPTS: '-Xmx512m' };
    const spec = specOf('kafka', context, {
      image: kafkaImage,
      variables,
      containerPort: 9092,
      hostPort: port,
      dataPath: '/var/lib/kafka/data',
    });
    await engine.start(spec, { log: /Kafka Server started/, deadlineMs: startDeadlineMs });
    return { address: `127.0.0.1:${port}`, port, what: `the image ${kafkaImage}` };
  });
}

export async function startPostgresInDocker(engine: DockerEngine, context: StartContext): Promise<StartedService> {
  const password = await keptPassword(join(context.directory, 'docker-password'));
  return await onSomePort(context, postgresImage, async (port) => {
    const url = `postgres://postgres:${password}@127.0.0.1:${port}/postgres`;
    const variables = { POSTGRES_PASSWORD: password, LC_ALL: 'C.UTF-8' };
    const spec = specOf('postgres', context, {
      image: postgresImage,
      variables,
      containerPort: 5432,
      hostPort: port,
      dataPath: '/var/lib/postgresql/data',
    });
    // Its log says "ready" once too early, for the server that only initialises; that one takes no connections from outside.
    await engine.start(spec, { check: async () => await connects(url), deadlineMs: startDeadlineMs });
    return { address: url, port, what: `the image ${postgresImage}` };
  });
}

export async function startRegistryInDocker(engine: DockerEngine, context: StartContext): Promise<StartedService> {
  return await onSomePort(context, registryImage, async (port) => {
    const spec = specOf('registry', context, {
      image: registryImage,
      variables: {},
      containerPort: 8080,
      hostPort: port,
      dataPath: undefined,
    });
    const url = `http://127.0.0.1:${port}${registryApiPath}`;
    await engine.start(spec, { check: async () => await answers(`${url}/subjects`), deadlineMs: startDeadlineMs });
    return { address: url, port, what: `the image ${registryImage}` };
  });
}

type OwnPart = Pick<ContainerSpec, 'image' | 'variables' | 'containerPort' | 'hostPort' | 'dataPath'>;

function specOf(service: ContainerSpec['service'], context: StartContext, own: OwnPart): ContainerSpec {
  return {
    ...own,
    service,
    stack: dirname(context.directory),
    keepData: !context.ephemeral,
    onProgress: (line) => context.onProgress(line),
    onContainer: (name) => context.onContainer(name),
  };
}

async function onSomePort(context: StartContext, image: string, start: (port: number) => Promise<StartedService>): Promise<StartedService> {
  context.onProgress(`Starting ${image} in Docker`);
  for (let attempt = 1; ; attempt++) {
    const preferred = context.preferredPort;
    const port = attempt === 1 && preferred !== undefined && (await isFree(preferred)) ? preferred : await freePort();
    try {
      return await start(port);
    } catch (error) {
      if (attempt < 5 && error instanceof ServerStartError && error.portTaken) continue;
      throw error;
    }
  }
}

/** The volume outlives the container, and with it the password that was set when it was made. */
async function keptPassword(file: string): Promise<string> {
  try {
    return (await readFile(file, 'utf8')).trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  const password = randomBytes(12).toString('hex');
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, `${password}\n`, { mode: 0o600 });
  return password;
}

async function connects(url: string): Promise<boolean> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 5_000 });
  // A connection that breaks after it was made is an answer too, but no reason to crash.
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.query('SELECT 1');
    return true;
  } catch {
    return false;
  } finally {
    await client.end().catch(() => undefined);
  }
}

async function answers(url: string): Promise<boolean> {
  return await fetch(url, { signal: AbortSignal.timeout(5_000) }).then(
    (response) => response.ok,
    () => false,
  );
}
