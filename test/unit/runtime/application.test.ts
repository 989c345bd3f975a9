import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { FatalError, RetriableError } from '../../../src/model/errors.ts';
import { Application, type ApplicationOptions, type ApplicationState } from '../../../src/runtime/application.ts';
import { PoisonRecordError } from '../../../src/runtime/record-failure.ts';
import { string } from '../../../src/serde/string.ts';
import { systemClock } from '../../../src/system/clock.ts';
import { StreamsBuilder } from '../../../src/topology/streams-builder.ts';
import { FakeClient, FakeCluster } from '../../support/fake-kafka.ts';
import { type LogLine, recordingLog } from '../../support/worker-bench.ts';

const IN0 = { topic: 'in', partition: 0 };
let stateDirectory: string;
const applications: Application[] = [];

beforeEach(async () => {
  stateDirectory = await mkdtemp(join(tmpdir(), 'tidemark-app-'));
});

afterEach(async () => {
  await Promise.all(applications.splice(0).map(async (application) => application.close({ timeoutMs: 1_000 })));
  await rm(stateDirectory, { recursive: true });
});

function bench(options: Partial<ApplicationOptions> = {}) {
  const builder = new StreamsBuilder();
  builder
    .stream('in', { key: string(), value: string() })
    .mapValues((value) => {
      if (value === 'bad') throw new Error('bad value');
      return value.toUpperCase();
    })
    .to('out', { value: string() });
  const cluster = new FakeCluster(systemClock);
  cluster.createTopic('in', 1);
  cluster.createTopic('out', 1);
  const client = new FakeClient(cluster);
  const lines: LogLine[] = [];
  const application = new Application({
    applicationId: 'app',
    topology: builder.build(),
    kafka: client,
    stateDirectory,
    logger: recordingLog(lines),
    commitIntervalMs: 10,
    ...options,
  });
  applications.push(application);
  const states: ApplicationState[] = [];
  application.onState((state) => states.push(state));
  return { application, client, cluster, lines, states };
}

function feed(cluster: FakeCluster, values: readonly string[]): void {
  cluster.feed(
    'in',
    0,
    values.map((value) => ({ key: 'k', value })),
  );
}

describe('Application', () => {
  it('goes from created to closed, and commits on the way', async () => {
    const { application, client, cluster, states } = bench();
    expect(application.state).toBe('created');
    client.consumer.assign([IN0]);
    await application.start();
    feed(cluster, ['a', 'b']);
    await vi.waitFor(() => expect(cluster.values('out')).toEqual(['A', 'B']));
    expect(application.state).toBe('running');
    await application.close();
    await application.finished;
    expect(states).toEqual(['starting', 'rebalancing', 'running', 'closing', 'closed']);
    expect(client.consumer.closed).toBe(true);
    expect(client.producers[0]?.closed).toBe(true);
  });

  it('gives its slot back, so that the next one has its instance id', async () => {
    const first = bench();
    await first.application.start();
    const id = first.application.instanceId;
    await first.application.close();
    const second = bench();
    await second.application.start();
    expect(second.application.instanceId).toBe(id);
  });

  it('fails at a poison record: finished rejects, the log says it, everything is closed', async () => {
    const { application, client, cluster, lines, states } = bench();
    client.consumer.assign([IN0]);
    await application.start();
    feed(cluster, ['a', 'bad', 'c']);
    await expect(application.finished).rejects.toThrow(PoisonRecordError);
    expect(application.state).toBe('failed');
    expect(states.slice(-2)).toEqual(['closing', 'failed']);
    expect(cluster.values('out')).toEqual(['A']);
    expect(cluster.groupOffsets.get('in/0')?.offset).toBe(1n);
    expect(lines.filter(({ level }) => level === 'error')).toHaveLength(1);
    expect(client.consumer.closed).toBe(true);
    await application.close();
    expect(application.state).toBe('failed');
  });

  it('names the topics that do not exist, and fails', async () => {
    const builder = new StreamsBuilder();
    builder.stream('absent').to('missing');
    const { application, client } = bench({ topology: builder.build() });
    await expect(application.start()).rejects.toThrow(/needs topics that do not exist: absent, missing/);
    expect(application.state).toBe('failed');
    await expect(application.finished).rejects.toThrow(FatalError);
    expect(client.producers[0]?.closed).toBe(true);
  });

  it('waits at the start for brokers that cannot be reached', async () => {
    const { application, cluster } = bench();
    cluster.fail('partitionCounts', new RetriableError('gone'), { times: 3 });
    await application.start();
    expect(cluster.journal.filter((call) => call === 'partitionCounts !')).toHaveLength(3);
  });

  it('can be closed while it waits at the start', async () => {
    const { application, cluster } = bench();
    cluster.fail('partitionCounts', new RetriableError('gone'), { times: 10_000 });
    const starting = application.start();
    await vi.waitFor(() => expect(cluster.journal.length).toBeGreaterThan(2));
    await application.close({ timeoutMs: 2_000 });
    await starting;
    expect(application.state).toBe('closed');
  });

  it('can be closed while the brokers do not answer at the start, and does not wait for them', async () => {
    const { application, cluster } = bench();
    let asked = 0;
    cluster.counts = () => {
      asked++;
      return new Promise(() => undefined) as never;
    };
    const starting = application.start();
    await vi.waitFor(() => expect(asked).toBe(1));
    const began = performance.now();
    await application.close({ timeoutMs: 20_000 });
    await Promise.all([starting, application.finished]);
    expect(application.state).toBe('closed');
    expect(performance.now() - began).toBeLessThan(5_000);
  });

  it('creates the dead letter topic where a policy can need it', async () => {
    const { application, client, cluster } = bench({ onProcessingError: () => 'dead-letter', deadLetterTopic: 'letters' });
    client.consumer.assign([IN0]);
    await application.start();
    feed(cluster, ['bad', 'b']);
    await vi.waitFor(() => expect(cluster.values('out')).toEqual(['B']));
    expect(cluster.values('letters')).toEqual(['bad']);
    const without = bench();
    await without.application.start();
    expect(without.cluster.partitionCount('app-dead-letters')).toBeUndefined();
  });

  it('closes within its deadline although the broker does not answer, and commits nothing then', async () => {
    const { application, client, cluster } = bench({ commitIntervalMs: 5 });
    client.consumer.assign([IN0]);
    await application.start();
    await vi.waitFor(() => expect(application.state).toBe('running'));
    const producer = client.producers[0]!;
    producer.flush = async () => new Promise<void>(() => undefined);
    feed(cluster, ['a']);
    const began = performance.now();
    await application.close({ timeoutMs: 600 });
    expect(performance.now() - began).toBeLessThan(1_500);
    expect(application.state).toBe('closed');
    expect(cluster.outputs).toEqual([]);
  });

  it('tells its health and metrics on loopback', async () => {
    const { application, client, cluster } = bench({ http: { port: 0 } });
    await application.start();
    const url = `http://127.0.0.1:${application.httpPort}`;
    expect((await fetch(`${url}/livez`)).status).toBe(200);
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
    client.consumer.assign([IN0]);
    feed(cluster, ['a']);
    await vi.waitFor(() => expect(cluster.outputs).toHaveLength(1));
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    expect(await (await fetch(`${url}/metrics`)).text()).toContain('tidemark_records_consumed_total{topic="in"} 1');
    await application.close();
    await expect(fetch(`${url}/livez`)).rejects.toThrow(/fetch failed/);
  });

  it('can be started once', async () => {
    const { application } = bench();
    await application.start();
    await expect(application.start()).rejects.toThrow(/start can be called once/);
    expect(application.state).toBe('rebalancing');
  });

  it('closed before it was started is closed', async () => {
    const { application } = bench();
    await application.close();
    expect(application.state).toBe('closed');
    await expect(application.start()).rejects.toThrow(/is closed/);
  });
});
