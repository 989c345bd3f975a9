/**
 * One worker process of the demonstration: runs both topologies until it is told to stop, or killed. Its configuration comes as the first
 * message of its parent; when the parent is gone, it ends too.
 */
import { Application, type Guarantee, type SinkMode } from '../src/index.ts';
import { flightsTopology } from '../topologies/flights.ts';
import { paymentsTopology } from '../topologies/payments.ts';
import { PIPELINES, type Names } from './guarantees.ts';

export interface WorkerConfiguration {
  readonly brokers: string;
  readonly database: string;
  readonly guarantee: Guarantee;
  readonly sinkMode: SinkMode;
  readonly names: Names;
  readonly stateDirectory: string;
  readonly instanceId: string;
  /** What a record costs, in microseconds of this process. */
  readonly workMicros: number;
}

function start(configuration: WorkerConfiguration): void {
  const { brokers, database, guarantee, sinkMode, names, stateDirectory, instanceId, workMicros } = configuration;
  const work = (): void => {
    const until = performance.now() + workMicros / 1_000;
    while (performance.now() < until);
  };
  const topologyOptions = { prefix: names.prefix, database, schema: names.schema, mode: sinkMode, work };
  const topologies = { flights: flightsTopology(topologyOptions), payments: paymentsTopology(topologyOptions) };
  const applications = PIPELINES.map(
    (pipeline) =>
      new Application({
        applicationId: names.applicationId[pipeline],
        topology: topologies[pipeline],
        kafka: { brokers: brokers.split(',') },
        guarantee,
        stateDirectory,
        instanceId,
        // A killed worker's successor has the same name in the group: it takes over at once, instead of after the session timeout.
        staticMembership: true,
        ...(guarantee === 'at-least-once' ? { commitIntervalMs: 1_000 } : {}),
        onDeserialisationError: 'dead-letter',
        deadLetterTopic: `${names.prefix}dead-letters`,
        sessionTimeoutMs: 6_000,
        heartbeatIntervalMs: 500,
        // Small fetches: what a killed at-most-once worker loses is what it had fetched.
        fetch: { maxPartitionBytes: 32 * 1024, maxBufferedBytes: 256 * 1024, maxWaitMs: 100 },
        // As the Java producer has it: outputs leave all the time, and not only when it is committed.
        producer: { batchBytes: 16 * 1024 },
        logger: { level: process.env['DEMO_LOG'] ?? 'silent' },
      }),
  );

  const stop = async (): Promise<void> => {
    await Promise.all(applications.map((application) => application.close()));
    process.disconnect?.();
  };
  // Also the end of one that has failed: applications that still run must not keep the process.
  process.once('disconnect', () => process.exit());
  process.on('message', (message) => {
    if (message === 'stop') stop().catch(fail);
  });
  for (const application of applications) application.finished.catch(fail);
  Promise.all(applications.map((application) => application.start())).then(() => process.send?.('started'), fail);
}

function fail(error: unknown): void {
  console.error(error);
  process.exitCode = 1;
  process.disconnect?.();
}

// Ctrl-C reaches the whole process group; the parent decides what happens then.
process.on('SIGINT', () => undefined);
process.once('message', (configuration) => start(configuration as WorkerConfiguration));
