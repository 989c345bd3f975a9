/** The process that `ApplicationProcess` starts: runs one application until it is told to stop, or dies at its fail point. */
import { writeFileSync } from 'node:fs';
import { Application, insert, json, postgresSink, string, StreamsBuilder, type Topology } from '../../src/index.ts';
import type { FailPoints } from '../../src/model/fail-point.ts';
import { type FailPointRule, type FromChild, type ProcessConfiguration, SINK_STAGE, type ToChild } from './application-process.ts';
import type { InputValue } from './input-records.ts';

let release: () => void = () => undefined;

function topologyOf({ input, output, sink, slowMs = 0 }: ProcessConfiguration): Topology {
  const builder = new StreamsBuilder();
  const serdes = { key: string(), value: json<InputValue>() };
  if (output !== undefined) {
    builder
      .stream(input, serdes)
      .mapValues((value) => {
        const until = performance.now() + slowMs;
        while (performance.now() < until);
        return { ...value, processed: `${process.pid}` };
      })
      .to(output, { value: json<InputValue & { processed: string }>() });
  }
  if (sink !== undefined) {
    const { database, mode, table, schema, maxBatchRecords, idleInTransactionTimeoutMs } = sink;
    builder.stream(output ?? input, serdes).sink(
      postgresSink<string, InputValue>({
        connection: database,
        mode,
        effect: insert({ table, columns: { id: 'id', key: 'key', n: 'n' } }),
        ...(schema === undefined ? {} : { schema }),
        ...(maxBatchRecords === undefined ? {} : { maxBatchRecords }),
        ...(idleInTransactionTimeoutMs === undefined ? {} : { idleInTransactionTimeoutMs }),
      }),
      { name: SINK_STAGE },
    );
  }
  return builder.build();
}

function failPointsOf({ name, nth = 1, action }: FailPointRule, marker: string): FailPoints {
  let hits = 0;
  return async (reached) => {
    if (reached !== name || ++hits !== nth) return;
    const gate = action === 'wait' ? new Promise<void>((resolve) => (release = resolve)) : undefined;
    writeFileSync(marker, '');
    if (action !== 'wait') {
      process.kill(process.pid, action === 'kill' ? 'SIGKILL' : 'SIGSTOP');
      // The signal may take a moment; nothing may run in it.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
    }
    await gate;
  };
}

async function run(configuration: ProcessConfiguration, marker: string): Promise<void> {
  const { brokers, applicationId, instanceId, stateDirectory, failPoint, fetchBytes = 16 * 1024, sliceRecords = 100 } = configuration;
  const { guarantee, commitIntervalMs, transactionTimeoutMs, sessionTimeoutMs, heartbeatIntervalMs } = configuration;
  const { maxPollIntervalMs, retryTimeoutMs, offsetOutOfRange, staticMembership } = configuration;
  const application = new Application({
    applicationId,
    instanceId,
    stateDirectory,
    topology: topologyOf(configuration),
    kafka: { brokers: brokers.split(',') },
    fetch: { maxPartitionBytes: fetchBytes, maxBufferedBytes: 16 * fetchBytes, maxWaitMs: 50 },
    maxSliceRecords: sliceRecords,
    logger: { level: process.env['TIDEMARK_TEST_LOG'] ?? 'info' },
    ...defined({ guarantee, commitIntervalMs, transactionTimeoutMs, sessionTimeoutMs, heartbeatIntervalMs }),
    ...defined({ maxPollIntervalMs, retryTimeoutMs, offsetOutOfRange, staticMembership }),
    ...(failPoint === undefined ? {} : { failPoints: failPointsOf(failPoint, marker) }),
  });
  process.on('message', (message: ToChild) => {
    if (message === 'release') release();
    if (message === 'stop') application.close().catch(fail);
  });
  application.onState((state) => tell({ state }));
  await application.start();
  await application.finished;
}

function defined<T extends object>(options: T): { [P in keyof T]: Exclude<T[P], undefined> } {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as {
    [P in keyof T]: Exclude<T[P], undefined>;
  };
}

function tell(message: FromChild): void {
  process.send?.(message, undefined, undefined, () => undefined);
}

function fail(error: unknown): void {
  process.exitCode = 1;
  const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  process.send?.({ failed: text } satisfies FromChild, undefined, undefined, () => process.disconnect());
}

// Told to end, or the parent is gone.
process.once('disconnect', () => process.exit());
process.on('SIGINT', () => undefined);
process.once('message', (message: Exclude<ToChild, string>) => {
  run(message.configuration, message.marker).then(() => process.disconnect(), fail);
});
