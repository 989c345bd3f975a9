import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { Kafka, logLevel } from 'kafkajs';
import { afterAll, describe, expect, inject, it, vi } from 'vitest';
import { IndependentReader } from '../support/independent-reader.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const COMMAND = join(ROOT, 'bin/tidemark.js');
mkdirSync(join(ROOT, '.tidemark'), { recursive: true });
const folder = mkdtempSync(join(ROOT, '.tidemark', 'cli-'));
const brokers = inject('kafkaBrokers');
const running = new Set<ChildProcess>();

afterAll(() => {
  for (const child of running) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

async function tidemark(args: readonly string[], variables: NodeJS.ProcessEnv): Promise<{ stdout: string; stderr: string }> {
  return await promisify(execFile)(process.execPath, [COMMAND, ...args], { cwd: folder, env: { ...process.env, ...variables } });
}

describe('tidemark stack up', () => {
  it('prints the addresses that are given, as JSON on the one line of standard output', async () => {
    const variables = { TIDEMARK_KAFKA_BROKERS: brokers, DATABASE_URL: inject('databaseUrl') };
    const { stdout } = await tidemark(['stack', 'up', '--json'], variables);
    expect(stdout.trimEnd().split('\n')).toHaveLength(1);
    expect(JSON.parse(stdout)).toMatchObject({ kafka: { address: brokers, how: 'given', startedHere: false }, environment: variables });
  });

  it('ends with code 1 and a message without a stack trace where an address is wrong', async () => {
    const failed = tidemark(['stack', 'up'], { TIDEMARK_KAFKA_BROKERS: '127.0.0.1:1' });
    await expect(failed).rejects.toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^tidemark: Nothing answers at [^\n]*\n$/) as unknown,
    });
  });
});

describe('tidemark run', () => {
  it('needs to be told where Kafka is', async () => {
    const file = join(ROOT, 'topologies/hello.ts');
    await expect(tidemark(['run', file], { TIDEMARK_KAFKA_BROKERS: '' })).rejects.toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/TIDEMARK_KAFKA_BROKERS is not set/) as unknown,
    });
  });

  it('runs the topology of a file until SIGTERM, then ends in order', async () => {
    const id = `cli-${randomBytes(4).toString('hex')}`;
    const file = join(folder, `${id}.ts`);
    writeFileSync(
      file,
      `import { StreamsBuilder, string } from '../../src/index.ts';
       const builder = new StreamsBuilder();
       builder.stream('${id}-in', { key: string(), value: string() }).mapValues((value) => value.toUpperCase()).to('${id}-out', { value: string() });
       export default builder;`,
    );
    const kafka = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.NOTHING });
    const admin = kafka.admin();
    await admin.connect();
    await admin.createTopics({ topics: ['in', 'out'].map((name) => ({ topic: `${id}-${name}`, numPartitions: 1 })) });
    await admin.disconnect();
    const producer = kafka.producer();
    await producer.connect();
    await producer.send({ topic: `${id}-in`, messages: [{ key: 'k', value: 'one' }] });
    await producer.disconnect();

    const reader = await IndependentReader.open({ brokers, jars: inject('kafkaJars') });
    const child = spawn(process.execPath, [COMMAND, 'run', file, '--id', id, '--state-directory', join(folder, 'state')], {
      env: { ...process.env, TIDEMARK_KAFKA_BROKERS: brokers },
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    running.add(child);
    try {
      await vi.waitUntil(
        async () => {
          if (child.exitCode !== null) throw new Error(`it ended with code ${child.exitCode}`);
          return (await reader.read(`${id}-out`)).records.length > 0;
        },
        { timeout: 60_000, interval: 200 },
      );
      child.kill('SIGTERM');
      expect((await once(child, 'close'))[0]).toBe(0);
      const { records, partitions } = await reader.read(`${id}-out`);
      expect(records.map((record) => [record.key?.toString(), record.value?.toString()])).toEqual([['k', 'ONE']]);
      expect(partitions[0]?.lastStable).toBe(partitions[0]?.highWatermark);
      expect((await reader.groupOffsets(id)).map((row) => row.offset)).toEqual([1n]);
    } finally {
      await reader.close();
    }
  });
});
