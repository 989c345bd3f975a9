import type { TestProject } from 'vitest/node';
import { kafkaJars } from '../../src/devstack/kafka-jars.ts';
import { startStack, type Stack } from '../../src/devstack/stack.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** HOST:PORT, several separated by commas. */
    kafkaBrokers: string;
    /** Of a superuser or another user who may create databases and schemas. */
    databaseUrl: string;
    /** The folder of Kafka's jars, for `IndependentReader`. */
    kafkaJars: string;
  }
}

/** One stack for all projects of a run, which vitest sets up one by one in this process. */
interface SharedStack {
  users: number;
  readonly stack: Promise<Stack>;
}

const place = Symbol.for('tidemark.test-stack');
const holder = globalThis as { [place]?: SharedStack };

/** Starts Kafka and Postgres for the run, or takes those in TIDEMARK_KAFKA_BROKERS and DATABASE_URL. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const onProgress = (line: string): void => void process.stderr.write(`stack: ${line}\n`);
  const shared = (holder[place] ??= { users: 0, stack: startForThisProcess(onProgress) });
  shared.users++;
  const stack = await shared.stack;
  project.provide('kafkaBrokers', stack.kafka.brokers);
  project.provide('databaseUrl', stack.postgres.url);
  project.provide('kafkaJars', await kafkaJars({ onProgress }));
  return async () => {
    if (--shared.users > 0) return;
    delete holder[place];
    await stack.stop();
  };
}

async function startForThisProcess(onProgress: (line: string) => void): Promise<Stack> {
  // A signal that nobody handles ends the process without the 'exit' event, which is what ends the stack. (At Ctrl-C on a terminal vitest tears
  // down in order: it reads the key itself.)
  for (const [signal, code] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
    ['SIGHUP', 129],
  ] as const) {
    process.once(signal, () => process.exit(code));
  }
  return await startStack({ ephemeral: true, onProgress });
}
