import { randomBytes } from 'node:crypto';
import { mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Java } from './java.ts';
import { kafkaSettings, propertiesText, type Listener } from './kafka-settings.ts';
import { freePorts, isFree } from './port.ts';
import { signal, stopProcess, waitUntilGone, type ProcessIdentity } from './process-identity.ts';
import { secureListeners, type SecuredAddresses } from './secure-listeners.ts';
import { run, ServerStartError, spawnServer, waitForLog } from './server-process.ts';
import { StackError } from './stack-error.ts';

export interface LocalKafkaOptions {
  /** Data, settings and log of this broker; made if absent, continued if a broker was here before. */
  readonly directory: string;
  /** From `kafkaJars()`. */
  readonly jars: string;
  readonly java: Java;
  /** Called with each process as soon as there is one: first what prepares the data, then the server, before it is ready. */
  readonly onSpawn?: (identity: ProcessIdentity) => void;
  /** A second listener that tells its clients to come to this port on 127.0.0.1, where a fault proxy may stand. */
  readonly proxied?: { readonly advertisedPort: number };
  /** Adds listeners with TLS, SASL (PLAIN and SCRAM-SHA-256), and both. */
  readonly secured?: { readonly username: string; readonly password: string };
  /** Broker settings over those of the stack. */
  readonly settings?: Readonly<Record<string, string>>;
  /** See `KafkaLayout`. Default 9000; 1500 for a broker that is to be killed and to come back soon (7 s instead of 13 s). */
  readonly sessionTimeoutMs?: number;
  /** Default 256. */
  readonly heapMegabytes?: number;
  /** Further arguments of the JVM, such as `classArchiveArguments()`. */
  readonly jvmArguments?: readonly string[];
  /** The port to use again, if it is still free. */
  readonly preferredPort?: number;
}

export interface LocalKafka {
  /** `127.0.0.1:PORT`. */
  readonly brokers: string;
  readonly port: number;
  /** Where a fault proxy has to forward to. */
  readonly proxiedPort: number | undefined;
  readonly secured: SecuredAddresses | undefined;
  /** The process as of now; another one after `restart()`. */
  identity(): ProcessIdentity;
  /** SIGKILL, and waits until the process is gone. */
  kill(): Promise<void>;
  /** SIGSTOP: the broker hangs, its connections stay open. */
  pause(): void;
  /** SIGCONT. */
  resume(): void;
  /** Starts the broker again on the same ports and data, after `kill()` or `stop()`. Throws if it still runs. */
  restart(): Promise<void>;
  /** A clean shutdown (2 s). Data stays. */
  stop(): Promise<void>;
}

const startDeadlineMs = 90_000;

/** Starts Kafka's own broker on this machine's Java, on loopback, and returns once it serves. */
export async function startLocalKafka(options: LocalKafkaOptions): Promise<LocalKafka> {
  await mkdir(options.directory, { recursive: true });
  for (let attempt = 1; ; attempt++) {
    const ports = await freePorts(6);
    if (attempt === 1 && options.preferredPort !== undefined && (await isFree(options.preferredPort))) ports[0] = options.preferredPort;
    try {
      return await startOnPorts(options, ports);
    } catch (error) {
      if (attempt < 5 && error instanceof ServerStartError && error.portTaken) continue;
      throw error;
    }
  }
}

async function startOnPorts(options: LocalKafkaOptions, ports: readonly number[]): Promise<LocalKafka> {
  const [port, controllerPort, proxiedPort, ...securePorts] = ports as [number, number, number, number, number, number];
  const directory = options.directory;
  const listeners: Listener[] = [listener('CLIENT', `127.0.0.1:${port}`, `127.0.0.1:${port}`)];
  if (options.proxied !== undefined) {
    listeners.push(listener('PROXIED', `127.0.0.1:${proxiedPort}`, `127.0.0.1:${options.proxied.advertisedPort}`));
  }
  const secure =
    options.secured === undefined ? undefined : await secureListeners(join(directory, 'tls'), options.java, options.secured, securePorts);
  const settings = {
    ...kafkaSettings({
      listeners: [...listeners, ...(secure?.listeners ?? [])],
      controller: `127.0.0.1:${controllerPort}`,
      dataDirectory: join(directory, 'data'),
      sessionTimeoutMs: options.sessionTimeoutMs ?? 9_000,
    }),
    ...secure?.settings,
    ...options.settings,
  };
  const settingsFile = join(directory, 'server.properties');
  await writeFile(settingsFile, propertiesText(settings), { mode: 0o600 });
  await writeFile(join(directory, 'log4j2.properties'), logSettings);
  await formatOnce(options, settings, secure?.formatArguments ?? []);

  const logFile = join(directory, 'kafka.log');
  let identity: ProcessIdentity | undefined;
  const spawnAndWait = async (): Promise<void> => {
    const fromByte = await stat(logFile).then(
      (file) => file.size,
      () => 0,
    );
    identity = await spawnServer(
      {
        file: options.java.command,
        args: [
          `-Xmx${options.heapMegabytes ?? 256}m`,
          '-XX:+UseSerialGC',
          '-XX:+ExitOnOutOfMemoryError',
          ...(options.jvmArguments ?? []),
          `-Dlog4j2.configurationFile=${join(directory, 'log4j2.properties')}`,
          '-cp',
          join(options.jars, '*'),
          'kafka.Kafka',
          settingsFile,
        ],
        cwd: directory,
        logFile,
      },
      (spawned) => options.onSpawn?.(spawned),
    );
    try {
      await waitForLog({ name: 'The Kafka broker', identity, logFile, fromByte }, /Kafka Server started/, startDeadlineMs);
    } catch (error) {
      await kill(identity);
      throw error;
    }
  };
  await spawnAndWait();

  const current = (): ProcessIdentity => {
    if (identity === undefined) throw new Error('The Kafka broker has not been started.');
    return identity;
  };
  return {
    brokers: `127.0.0.1:${port}`,
    port,
    proxiedPort: options.proxied === undefined ? undefined : proxiedPort,
    secured: secure?.addresses,
    identity: current,
    kill: async () => await kill(current()),
    pause: () => signal(current(), 'SIGSTOP'),
    resume: () => signal(current(), 'SIGCONT'),
    restart: async () => {
      if (!(await waitUntilGone(current(), 0))) throw new StackError('The Kafka broker still runs: kill() or stop() it before restart().');
      await spawnAndWait();
    },
    stop: async () => await stopLocalKafka(current()),
  };
}

/** A clean shutdown, or SIGKILL where that takes too long. Also ends a broker that a process that is no more has started. */
export async function stopLocalKafka(identity: ProcessIdentity): Promise<void> {
  signal(identity, 'SIGCONT');
  await stopProcess(identity, [
    { signal: 'SIGTERM', deadlineMs: 20_000 },
    { signal: 'SIGKILL', deadlineMs: 10_000 },
  ]);
}

async function kill(identity: ProcessIdentity): Promise<void> {
  await stopProcess(identity, [{ signal: 'SIGKILL', deadlineMs: 10_000 }]);
}

function listener(name: string, bind: string, advertised: string): Listener {
  return { name, protocol: 'PLAINTEXT', bind, advertised };
}

/** Formats the data directory unless it is. Under another name first, so that a half-formatted one is never taken for a whole one. */
async function formatOnce(options: LocalKafkaOptions, settings: Readonly<Record<string, string>>, extra: readonly string[]): Promise<void> {
  const data = join(options.directory, 'data');
  if (await isFormatted(data)) return;
  await rm(data, { recursive: true, force: true });
  const fresh = join(options.directory, 'data.new');
  await rm(fresh, { recursive: true, force: true });
  const formatFile = join(options.directory, 'format.properties');
  await writeFile(formatFile, propertiesText({ ...settings, 'log.dirs': fresh }), { mode: 0o600 });
  const clusterId = randomBytes(16).toString('base64url');
  await run(
    options.java.command,
    [
      '-XX:TieredStopAtLevel=1',
      '-XX:+UseSerialGC',
      ...(options.jvmArguments ?? []).filter((argument) => argument.startsWith('-XX:SharedArchiveFile=')),
      `-Dlog4j2.configurationFile=${join(options.directory, 'log4j2.properties')}`,
      '-cp',
      join(options.jars, '*'),
      'kafka.tools.StorageTool',
      'format',
      '--cluster-id',
      // The tool would take an id that begins with a dash for an option.
      clusterId.replace(/^-/, 'A'),
      '--config',
      formatFile,
      ...extra,
    ],
    { deadlineMs: 60_000, cwd: options.directory, onSpawn: options.onSpawn },
  );
  await rm(formatFile, { force: true });
  await rename(fresh, data);
}

async function isFormatted(data: string): Promise<boolean> {
  return await readFile(join(data, 'meta.properties')).then(
    () => true,
    () => false,
  );
}

const logSettings = `status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
`;
