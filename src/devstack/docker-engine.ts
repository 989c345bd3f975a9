import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type * as Testcontainers from 'testcontainers';
import type { Lookup } from './java.ts';
import type { Progress } from './kafka-jars.ts';
import { ServerStartError, excerpt } from './server-process.ts';
import type { ServiceName } from './stack-state.ts';
import { StackError } from './stack-error.ts';

export interface ContainerSpec {
  readonly service: ServiceName;
  /** The folder of the stack that the container belongs to. */
  readonly stack: string;
  readonly image: string;
  readonly variables: Readonly<Record<string, string>>;
  readonly containerPort: number;
  /** On 127.0.0.1. */
  readonly hostPort: number;
  /** Where the data lies in the container. It is kept in a named volume if `keepData`, else in one that goes with the container. */
  readonly dataPath: string | undefined;
  readonly keepData: boolean;
  readonly onProgress: Progress;
  /** Called with the container's name before there is one, so that whoever keeps the books can find it whatever happens. */
  onContainer(name: string): void;
}

/** What a stack needs of Docker. Containers go by names that follow from the stack's folder, and are touched only if their label says so too. */
export interface DockerEngine {
  readonly version: string;
  /** Replaces a container of the same stack and service. Throws ServerStartError if it does not write `ready` to its log, or `check` fails, in time. */
  start(
    spec: ContainerSpec,
    ready: { readonly log?: RegExp; readonly check?: () => Promise<boolean>; readonly deadlineMs: number },
  ): Promise<void>;
  isRunning(name: string): Promise<boolean>;
  /** Stops and removes the container; a volume with a name stays. */
  remove(name: string): Promise<void>;
  removeVolume(stack: string, service: ServiceName): Promise<void>;
}

const connectDeadlineMs = 10_000;
const pullDeadlineMs = 600_000;
const stackLabel = 'tidemark.stack';

/** The engine that testcontainers finds (DOCKER_HOST, the usual sockets), if it answers and runs on this machine. */
export async function connectDocker(): Promise<Lookup<DockerEngine>> {
  let testcontainers: typeof Testcontainers;
  try {
    testcontainers = await import('testcontainers');
  } catch {
    return { missing: 'the npm package testcontainers is not installed' };
  }
  try {
    const client = await withDeadline(testcontainers.getContainerRuntimeClient(), connectDeadlineMs, 'the Docker engine does not answer');
    const { host, serverVersion } = client.info.containerRuntime;
    if (host !== 'localhost' && host !== '127.0.0.1') {
      return { missing: `the Docker engine runs on another host (${host}), where ports on its loopback cannot be reached` };
    }
    return { found: engineOf(client, String(serverVersion), (image) => testcontainers.ImageName.fromString(image)) };
  } catch (error) {
    return { missing: `no Docker engine answers (${error instanceof Error ? error.message : String(error)})` };
  }
}

export function containerName(stack: string, service: ServiceName): string {
  return `tidemark-${createHash('sha256').update(stack).digest('hex').slice(0, 12)}-${service}`;
}

function engineOf(
  client: Testcontainers.ContainerRuntimeClient,
  version: string,
  imageName: (image: string) => Parameters<Testcontainers.ContainerRuntimeClient['image']['pull']>[0],
): DockerEngine {
  const docker = client.container.dockerode;

  const inspect = async (name: string): Promise<Awaited<ReturnType<ReturnType<typeof docker.getContainer>['inspect']>> | undefined> =>
    await docker.getContainer(name).inspect().catch(undefinedIfAbsent);

  const remove = async (name: string): Promise<void> => {
    const found = await inspect(name);
    if (found === undefined) return;
    if (found.Config.Labels[stackLabel] === undefined)
      throw new StackError(`The container ${name} is not one of tidemark's: remove or rename it.`);
    const container = docker.getContainer(found.Id);
    if (found.State.Running) await container.stop({ t: 15 }).catch(undefinedIfAbsent);
    await container.remove({ force: true, v: true }).catch(undefinedIfAbsent);
  };

  const pull = async (image: string, onProgress: Progress): Promise<void> => {
    const name = imageName(image);
    if (await client.image.exists(name)) return;
    onProgress(`Pulling the image ${image}`);
    await withDeadline(client.image.pull(name), pullDeadlineMs, `the image ${image} was not pulled`);
    if (!(await client.image.exists(name))) throw new StackError(`The image ${image} could not be pulled.`);
  };

  return {
    version,
    start: async (spec, ready) => {
      await pull(spec.image, spec.onProgress);
      const name = containerName(spec.stack, spec.service);
      await remove(name);
      spec.onContainer(name);
      const container = await docker.createContainer({
        name,
        Image: spec.image,
        Env: Object.entries(spec.variables).map(([variable, value]) => `${variable}=${value}`),
        ExposedPorts: { [`${spec.containerPort}/tcp`]: {} },
        Labels: { [stackLabel]: spec.stack, 'tidemark.service': spec.service },
        HostConfig: {
          PortBindings: { [`${spec.containerPort}/tcp`]: [{ HostIp: '127.0.0.1', HostPort: String(spec.hostPort) }] },
          ...(spec.dataPath !== undefined && spec.keepData ? { Mounts: [{ Type: 'volume', Source: name, Target: spec.dataPath }] } : {}),
        },
      });
      try {
        await container.start();
      } catch (error) {
        await remove(name);
        const message = error instanceof Error ? error.message : String(error);
        throw new ServerStartError(`The container of ${spec.image} could not be started: ${message}`, message);
      }
      const end = performance.now() + ready.deadlineMs;
      for (;;) {
        const running = (await inspect(name))?.State.Running === true;
        const log = demultiplexed(await container.logs({ stdout: true, stderr: true, follow: false }));
        if (running && (ready.log === undefined || ready.log.test(log)) && (ready.check === undefined || (await ready.check()))) return;
        if (!running || performance.now() > end) {
          await remove(name);
          const how = running ? `was not ready after ${ready.deadlineMs / 1000} s` : 'ended while it started';
          throw new ServerStartError(`The container of ${spec.image} ${how}.${excerpt(log)}`, log);
        }
        await delay(100);
      }
    },
    isRunning: async (name) => (await inspect(name))?.State.Running === true,
    remove,
    removeVolume: async (stack, service) => {
      await docker.getVolume(containerName(stack, service)).remove().catch(undefinedIfAbsent);
    },
  };
}

/** Docker sends the two output streams as frames: one byte of kind, three of nothing, four of length, then the text. */
function demultiplexed(frames: Buffer): string {
  const parts: Buffer[] = [];
  for (let at = 0; at + 8 <= frames.length;) {
    const length = frames.readUInt32BE(at + 4);
    parts.push(frames.subarray(at + 8, at + 8 + length));
    at += 8 + length;
  }
  return Buffer.concat(parts).toString();
}

function undefinedIfAbsent(error: Error & { readonly statusCode?: number }): undefined {
  // 404: there is none. 304: it is stopped already. 409: its removal is already under way.
  if (error.statusCode === 404 || error.statusCode === 304 || error.statusCode === 409) return undefined;
  throw error;
}

async function withDeadline<T>(promise: Promise<T>, deadlineMs: number, message: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new StackError(`${message} within ${deadlineMs / 1000} s`)), deadlineMs);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
