import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Kafka, logLevel } from 'kafkajs';
import { Client } from 'pg';
import { getContainerRuntimeClient } from 'testcontainers';
import { afterEach, describe, expect, it } from 'vitest';
import { containerName } from '../../src/devstack/docker-engine.ts';
import { StackBook } from '../../src/devstack/stack-state.ts';
import { stackStatus, startStack, stopStack } from '../../src/devstack/stack.ts';

const directories: string[] = [];

function freshDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'tidemark-docker-'));
  directories.push(directory);
  return directory;
}

afterEach(async () => {
  for (const directory of directories.splice(0)) {
    await stopStack({ directory, removeData: true });
    rmSync(directory, { recursive: true, force: true });
  }
});

async function docker(): Promise<Awaited<ReturnType<typeof getContainerRuntimeClient>>['container']['dockerode']> {
  return (await getContainerRuntimeClient()).container.dockerode;
}

async function containersOf(
  stack: string,
): Promise<readonly { readonly Id: string; readonly Ports: readonly { readonly IP?: string }[] }[]> {
  return await (await docker()).listContainers({ all: true, filters: { label: [`tidemark.stack=${stack}`] } });
}

async function topics(brokers: string): Promise<string[]> {
  const admin = new Kafka({ brokers: [brokers], logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  try {
    return await admin.listTopics();
  } finally {
    await admin.disconnect();
  }
}

async function query(url: string, sql: string): Promise<unknown[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(sql)).rows;
  } finally {
    await client.end();
  }
}

/** Needs a Docker engine, and pulls 600 MB of images on first use: run it with TIDEMARK_TEST_DOCKER=1. */
describe.skipIf(process.env['TIDEMARK_TEST_DOCKER'] !== '1')('a stack in Docker', { timeout: 600_000 }, () => {
  it('listens on loopback only, keeps its data over down and up, and loses it when that is asked for', async () => {
    const directory = freshDirectory();
    const folder = join(directory, '.tidemark', 'stack');
    const first = await startStack({ directory, sources: ['docker'], registry: true });
    expect([first.kafka.how, first.postgres.how, first.registry?.how]).toEqual(['docker', 'docker', 'docker']);
    const containers = await containersOf(folder);
    expect(new Set(containers.flatMap((container) => container.Ports.map((port) => port.IP)).filter((ip) => ip !== undefined))).toEqual(
      new Set(['127.0.0.1']),
    );
    expect(await (await fetch(`${first.registry?.url}/subjects`)).json()).toEqual([]);

    const kafka = new Kafka({ brokers: [first.kafka.brokers], logLevel: logLevel.NOTHING });
    const admin = kafka.admin();
    await admin.connect();
    await admin.createTopics({ topics: [{ topic: 'kept', numPartitions: 1 }] });
    await admin.disconnect();
    const producer = kafka.producer({ transactionalId: 'x', idempotent: true, maxInFlightRequests: 1 });
    await producer.connect();
    const transaction = await producer.transaction();
    await transaction.send({ topic: 'kept', messages: [{ value: 'x' }] });
    await transaction.commit();
    await producer.disconnect();
    await query(first.postgres.url, 'CREATE TABLE kept AS SELECT 7 AS answer');

    await stopStack({ directory });
    expect(await containersOf(folder)).toEqual([]);
    const second = await startStack({ directory, sources: ['docker'] });
    expect(second.kafka.brokers).toBe(first.kafka.brokers);
    expect(await topics(second.kafka.brokers)).toContain('kept');
    expect(await query(second.postgres.url, 'SELECT answer FROM kept')).toEqual([{ answer: 7 }]);

    await stopStack({ directory, removeData: true });
    const volumes = await (await docker()).listVolumes();
    expect(volumes.Volumes.map((volume) => volume.Name)).not.toContain(containerName(folder, 'kafka'));
  });

  it('that a killed process has left half-started, or that has ended since, is started anew', async () => {
    const directory = freshDirectory();
    const folder = join(directory, '.tidemark', 'stack');
    const book = new StackBook(folder);
    const name = containerName(folder, 'postgres');
    const container = await (await docker()).createContainer({ name, Image: 'postgres:17', Labels: { 'tidemark.stack': folder } });
    book.set('postgres', { how: 'docker', why: 'x', container: name });
    const stack = await startStack({ directory, sources: ['docker'] });
    expect(await query(stack.postgres.url, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
    await expect((await docker()).getContainer(container.id).inspect()).rejects.toThrow(/no such container/i);

    await (await docker()).getContainer(name).kill();
    expect((await stackStatus({ directory })).filter((row) => row.how !== 'given').map((row) => row.running)).toEqual([true, false]);
    const again = await startStack({ directory, sources: ['docker'] });
    expect(again.kafka.startedHere).toBe(false);
    expect(again.postgres).toMatchObject({ url: stack.postgres.url, startedHere: true });
  });

  it('takes another port where the old one is in use, and leaves alone a container that only has its name', async () => {
    const directory = freshDirectory();
    const folder = join(directory, '.tidemark', 'stack');
    const first = await startStack({ directory, sources: ['docker'] });
    await stopStack({ directory });
    const port = Number(first.kafka.brokers.split(':')[1]);
    const taken = createServer();
    await new Promise<void>((resolve) => taken.listen(port, '127.0.0.1', resolve));
    const name = containerName(folder, 'postgres');
    const stranger = await (await docker()).createContainer({ name, Image: 'postgres:17' });
    try {
      await expect(startStack({ directory, sources: ['docker'] })).rejects.toThrow(/is not one of tidemark's/);
      await stranger.remove({ force: true, v: true });
      const second = await startStack({ directory, sources: ['docker'] });
      expect(second.kafka.brokers).not.toBe(first.kafka.brokers);
      expect(await topics(second.kafka.brokers)).toEqual([]);
    } finally {
      await new Promise((resolve) => taken.close(resolve));
    }
  });

  it('of a run of its own leaves no container and no volume', async () => {
    const directory = freshDirectory();
    const volumesBefore = (await (await docker()).listVolumes()).Volumes.length;
    const stack = await startStack({ directory, sources: ['docker'], ephemeral: true });
    expect(await topics(stack.kafka.brokers)).toEqual([]);
    await stack.stop();
    const left = await (await docker()).listContainers({ all: true, filters: { label: ['tidemark.stack'] } });
    expect(left.filter((container) => container.Labels['tidemark.stack']?.startsWith(directory))).toEqual([]);
    expect((await (await docker()).listVolumes()).Volumes.length).toBe(volumesBefore);
  });
});
