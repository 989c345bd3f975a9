import { basename, extname } from 'node:path';
import { type Command, Option } from 'commander';
import { addressVariables } from '../devstack/given-address.ts';
import { ConfigurationError } from '../model/errors.ts';
import type { Guarantee } from '../model/guarantee.ts';
import { FAILURE_ACTIONS, type FailureAction } from '../runtime/record-failure.ts';
import { loadTopology } from './describe.ts';

const GUARANTEES: readonly Guarantee[] = ['exactly-once', 'at-least-once', 'at-most-once'];

interface RunOptions {
  readonly id?: string;
  readonly guarantee: Guarantee;
  readonly badRecords: FailureAction;
  readonly stateDirectory?: string;
  readonly port?: string;
}

/** Adds `tidemark run FILE`. */
export function registerRun(program: Command): void {
  program
    .command('run')
    .argument('<file>', 'a module that exports a topology')
    .description(`run the topology of a file on the brokers in ${addressVariables.kafka}, until it is told to end (SIGINT, SIGTERM)`)
    .option('--id <name>', "the application's name in the cluster, one for all its processes (default: the name of the file)")
    .addOption(
      new Option('--guarantee <guarantee>', 'what happens to a record when a process dies').choices(GUARANTEES).default('exactly-once'),
    )
    .addOption(
      new Option('--bad-records <action>', 'what to do with a record that cannot be read or processed')
        .choices(FAILURE_ACTIONS)
        .default('fail'),
    )
    .option('--state-directory <folder>', 'where this machine keeps who it is (default: in the folder for temporary files)')
    .option('--port <port>', 'serve /metrics, /livez and /readyz there, on loopback')
    .action(run);
}

async function run(file: string, options: RunOptions): Promise<void> {
  const brokers = process.env[addressVariables.kafka]?.trim();
  if (brokers === undefined || brokers === '') {
    throw new ConfigurationError(
      `${addressVariables.kafka} is not set: set it to HOST:PORT of a broker (several separated by commas). tidemark stack up starts one and prints it.`,
    );
  }
  // The engine is loaded for this command only: the others start faster without it.
  const { Application } = await import('../runtime/application.ts');
  const application = new Application({
    applicationId: options.id ?? basename(file, extname(file)),
    topology: await loadTopology(file),
    kafka: { brokers: brokers.split(',').map((broker) => broker.trim()) },
    guarantee: options.guarantee,
    onDeserialisationError: options.badRecords,
    onProcessingError: options.badRecords,
    ...(options.stateDirectory === undefined ? {} : { stateDirectory: options.stateDirectory }),
    ...(options.port === undefined ? {} : { http: { port: Number(options.port) } }),
  });
  const close = (): void => void application.close();
  process.once('SIGINT', close);
  process.once('SIGTERM', close);
  try {
    await application.start();
    await application.finished;
  } finally {
    process.removeListener('SIGINT', close);
    process.removeListener('SIGTERM', close);
  }
}
