import { mkdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Java } from './java.ts';
import { freePort, isFree } from './port.ts';
import { stopProcess, type ProcessIdentity } from './process-identity.ts';
import { ServerStartError, spawnServer, waitForLog } from './server-process.ts';

export interface LocalRegistryOptions {
  readonly directory: string;
  /** From `registryProgram()`. */
  readonly jar: string;
  readonly java: Java;
  readonly onSpawn?: (identity: ProcessIdentity) => void;
  readonly preferredPort?: number;
}

export interface LocalRegistry {
  /** The Confluent-compatible API. */
  readonly url: string;
  readonly port: number;
  readonly identity: ProcessIdentity;
  stop(): Promise<void>;
}

/** The path of Apicurio's API that clients of Confluent's registry speak. */
export const registryApiPath = '/apis/ccompat/v6';

/** Starts Apicurio Registry on loopback, schemas in memory. */
export async function startLocalRegistry(options: LocalRegistryOptions): Promise<LocalRegistry> {
  await mkdir(options.directory, { recursive: true });
  for (let attempt = 1; ; attempt++) {
    const preferred = options.preferredPort;
    const port = attempt === 1 && preferred !== undefined && (await isFree(preferred)) ? preferred : await freePort();
    try {
      return await startOnPort(options, port);
    } catch (error) {
      if (attempt < 5 && error instanceof ServerStartError && error.portTaken) continue;
      throw error;
    }
  }
}

export async function stopLocalRegistry(identity: ProcessIdentity): Promise<void> {
  await stopProcess(identity, [
    { signal: 'SIGTERM', deadlineMs: 10_000 },
    { signal: 'SIGKILL', deadlineMs: 10_000 },
  ]);
}

async function startOnPort(options: LocalRegistryOptions, port: number): Promise<LocalRegistry> {
  const logFile = join(options.directory, 'registry.log');
  const fromByte = await stat(logFile).then(
    (file) => file.size,
    () => 0,
  );
  const identity = await spawnServer(
    {
      file: options.java.command,
      args: ['-Xmx256m', '-XX:+UseSerialGC', '-jar', options.jar],
      cwd: options.directory,
      env: { ...process.env, QUARKUS_HTTP_HOST: '127.0.0.1', QUARKUS_HTTP_PORT: String(port) },
      logFile,
    },
    (spawned) => options.onSpawn?.(spawned),
  );
  try {
    await waitForLog({ name: 'The schema registry', identity, logFile, fromByte }, /Listening on: http/, 90_000);
  } catch (error) {
    await stopLocalRegistry(identity);
    throw error;
  }
  return { url: `http://127.0.0.1:${port}${registryApiPath}`, port, identity, stop: async () => await stopLocalRegistry(identity) };
}
