import { mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { run } from '../src/devstack/server-process.ts';
import { startStack } from '../src/devstack/stack.ts';
import { type Admin, kafkaClient } from '../src/index.ts';
import { Peer } from './peer.ts';

/** What every measurement needs. */
export interface Workbench {
  readonly brokers: string;
  /** Connection string of Postgres. */
  readonly database: string;
  readonly admin: Admin;
  readonly peer: Peer;
  /** The folder with the compiled jobs of this one. */
  readonly compiled: string;
  /** Removed in the end. */
  readonly temporary: string;
  readonly signal: AbortSignal;
  readonly onProgress: (line: string) => void;
  /** A name that no other run has. */
  name(what: string): string;
}

export const PARTITIONS = 4;

/** Starts the stack, compiles everything, runs `work`, and ends and removes it all. */
export async function withWorkbench<T>(
  options: Pick<Workbench, 'signal' | 'onProgress'>,
  work: (workbench: Workbench) => Promise<T>,
): Promise<T> {
  const { signal, onProgress } = options;
  const stack = await startStack({ ephemeral: true, onProgress });
  const temporary = await mkdtemp(join(tmpdir(), 'tidemark-bench-'));
  const admin = kafkaClient({ brokers: stack.kafka.brokers.split(','), clientId: 'bench' }).admin();
  try {
    const { brokers } = stack.kafka;
    onProgress(`Kafka ${brokers} (${stack.kafka.how}), Postgres (${stack.postgres.how})`);
    const peer = await Peer.open({ brokers, temporary, signal, onProgress });
    const compiled = await compileJobs();
    const run = Date.now().toString(36);
    let names = 0;
    const name = (what: string): string => `bench-${run}-${what}-${++names}`;
    return await work({ brokers, database: stack.postgres.url, admin, peer, compiled, temporary, signal, onProgress, name });
  } finally {
    await admin.close();
    await rm(temporary, { recursive: true, force: true });
    await stack.stop();
  }
}

/** Topics for one measurement; they are deleted after it, since the disk is shared by all. */
export async function withTopics<T>({ admin }: Workbench, topics: readonly string[], work: () => Promise<T>): Promise<T> {
  await admin.createTopics(topics.map((topic) => ({ topic, partitions: PARTITIONS })));
  try {
    return await work();
  } finally {
    await admin.deleteTopics(topics);
  }
}

async function compileJobs(): Promise<string> {
  const packageFile = createRequire(import.meta.url).resolve('typescript/package.json');
  const config = join(import.meta.dirname, 'tsconfig.jobs.json');
  await run(process.execPath, [join(dirname(packageFile), 'bin', 'tsc'), '-p', config], { deadlineMs: 120_000 });
  return join(import.meta.dirname, '..', '.tidemark', 'bench', 'bench');
}
