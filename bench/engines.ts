import { join } from 'node:path';
import { type Command, Job } from './job.ts';
import type { Workbench } from './workbench.ts';

export type MapJob = {
  readonly group: string;
  readonly in: string;
  readonly out: string;
};

/** One of those that are measured against each other: how its map job is started. */
export interface Engine {
  readonly title: string;
  command(workbench: Workbench, job: MapJob): Command;
}

export const COMMIT_MS = 100;

function kafkaStreams(threads: number): Engine {
  return {
    title: `Kafka Streams, ${threads} thread${threads === 1 ? '' : 's'}`,
    command: ({ peer }, { group, in: input, out }) => peer.command(['map', group, input, out, threads, COMMIT_MS]),
  };
}

export const KAFKA_STREAMS = kafkaStreams(1);
export const KAFKA_STREAMS_2 = kafkaStreams(2);

export const TIDEMARK: Engine = {
  title: 'Tidemark',
  command: (workbench, job) => nodeJob(workbench, 'tidemark-map', { brokers: workbench.brokers, ...job }),
};

export const PLAIN_KAFKAJS: Engine = {
  title: 'plain kafkajs',
  command: (workbench, job) => nodeJob(workbench, 'plain-kafkajs', { brokers: workbench.brokers, ...job, 'commit-ms': String(COMMIT_MS) }),
};

/** A job of this folder, compiled: so it is measured as users run it, and not with what a loader of TypeScript adds. */
export function nodeJob({ compiled, temporary }: Workbench, name: string, options: Readonly<Record<string, string>>): Command {
  const flags = Object.entries(options).map(([option, value]) => `--${option}=${value}`);
  return { file: process.execPath, args: [join(compiled, `${name}.js`), ...flags], env: { TMPDIR: temporary } };
}

export function startEngine(workbench: Workbench, engine: Engine, job: MapJob): Job {
  return new Job(engine.title, engine.command(workbench, job), workbench.signal);
}
