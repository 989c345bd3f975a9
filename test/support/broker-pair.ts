import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findJava } from '../../src/devstack/java.ts';
import { kafkaJars } from '../../src/devstack/kafka-jars.ts';
import { kafkaSettings, propertiesText } from '../../src/devstack/kafka-settings.ts';
import { freePorts } from '../../src/devstack/port.ts';
import { signal, stopProcess, type ProcessIdentity } from '../../src/devstack/process-identity.ts';
import { run, spawnServer, waitForLog } from '../../src/devstack/server-process.ts';

export interface PairedBroker {
  readonly nodeId: number;
  /** `127.0.0.1:PORT`. */
  readonly address: string;
  /** SIGKILL, and waits until the process is gone. */
  kill(): Promise<void>;
}

export interface BrokerPair {
  /** Node 1 is the controller too. */
  readonly brokers: readonly [PairedBroker, PairedBroker];
  /** Both addresses. */
  readonly addresses: string;
  close(): Promise<void>;
}

/** A cluster of two brokers for one test file alone: for what one broker cannot show, such as leaders on two nodes. */
export async function startBrokerPair(): Promise<BrokerPair> {
  const found = await findJava(process.env);
  if ('missing' in found) throw new Error(found.missing);
  const java = found.found.command;
  const jars = await kafkaJars();
  const directory = await mkdtemp(join(tmpdir(), 'tidemark-pair-'));
  const [first, second, controller] = (await freePorts(3)) as [number, number, number];
  const clusterId = `A${randomBytes(16).toString('base64url').slice(1)}`;
  const processes: ProcessIdentity[] = [];
  const close = async (): Promise<void> => {
    await Promise.all(processes.map((identity) => end(identity)));
    await rm(directory, { recursive: true, force: true });
  };
  // For when the test's process ends before `close` is called.
  const endAll = (): void => processes.forEach((identity) => signal(identity, 'SIGKILL'));
  process.once('exit', endAll);

  const start = async (nodeId: number, port: number): Promise<PairedBroker> => {
    const home = join(directory, String(nodeId));
    await mkdir(home);
    const address = `127.0.0.1:${port}`;
    const settings = {
      ...kafkaSettings({
        listeners: [{ name: 'CLIENT', protocol: 'PLAINTEXT', bind: address, advertised: address }],
        controller: `127.0.0.1:${controller}`,
        dataDirectory: join(home, 'data'),
        sessionTimeoutMs: 1_500,
      }),
      'node.id': String(nodeId),
      'controller.quorum.voters': `1@127.0.0.1:${controller}`,
      'offsets.topic.replication.factor': '2',
      'transaction.state.log.replication.factor': '2',
      ...(nodeId === 1 ? {} : { 'process.roles': 'broker', listeners: `CLIENT://${address}` }),
    };
    const settingsFile = join(home, 'server.properties');
    await writeFile(settingsFile, propertiesText(settings));
    const javaArguments = [
      `-Dlog4j2.configurationFile=${join(home, 'log4j2.properties')}`,
      '-XX:TieredStopAtLevel=1',
      '-XX:+UseSerialGC',
      '-Xmx256m',
      '-cp',
      join(jars, '*'),
    ];
    await writeFile(join(home, 'log4j2.properties'), LOG_SETTINGS);
    const format = ['kafka.tools.StorageTool', 'format', '--cluster-id', clusterId, '--config', settingsFile];
    await run(java, [...javaArguments, ...format], { deadlineMs: 60_000, cwd: home });
    const logFile = join(home, 'kafka.log');
    const identity = await spawnServer(
      { file: java, args: [...javaArguments, 'kafka.Kafka', settingsFile], cwd: home, logFile },
      (spawned) => processes.push(spawned),
    );
    await waitForLog({ name: `Kafka broker ${nodeId}`, identity, logFile, fromByte: 0 }, /Kafka Server started/, 90_000);
    return { nodeId, address, kill: async () => await end(identity) };
  };
  try {
    const brokers = await Promise.all([start(1, first), start(2, second)]);
    return {
      brokers,
      addresses: brokers.map(({ address }) => address).join(','),
      close: async () => {
        process.off('exit', endAll);
        await close();
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}

async function end(identity: ProcessIdentity): Promise<void> {
  await stopProcess(identity, [{ signal: 'SIGKILL', deadlineMs: 10_000 }]);
}

const LOG_SETTINGS = `status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
`;
