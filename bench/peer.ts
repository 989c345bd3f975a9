import { createHash } from 'node:crypto';
import { copyFile, readFile, stat } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { cacheFolder, folderMadeOnce } from '../src/devstack/cache-folder.ts';
import { findJava, findMaven } from '../src/devstack/java.ts';
import { dependencyPlugin } from '../src/devstack/kafka-jars.ts';
import { run } from '../src/devstack/server-process.ts';
import { type Command, Job } from './job.ts';

const SOURCES = join(import.meta.dirname, 'kafka-streams');
const CALL_DEADLINE_MS = 600_000;

/** `Peer.java` ready to run: Kafka Streams, and what measures all engines alike. */
export class Peer {
  readonly #java: string;
  readonly #classPath: string;
  readonly #brokers: string;
  readonly #temporary: string;
  readonly #signal: AbortSignal;

  private constructor(java: string, classPath: string, options: { brokers: string; temporary: string; signal: AbortSignal }) {
    this.#java = java;
    this.#classPath = classPath;
    this.#brokers = options.brokers;
    this.#temporary = options.temporary;
    this.#signal = options.signal;
  }

  /**
   * Fetches the jars of Kafka Streams with Maven and compiles `Peer.java`, both once per version; they stay in the user's cache. Throws where
   * there is no JDK of version 17 or newer, or no Maven.
   */
  static async open(options: {
    readonly brokers: string;
    /** For the local state of Kafka Streams. */
    readonly temporary: string;
    readonly signal: AbortSignal;
    readonly onProgress: (line: string) => void;
  }): Promise<Peer> {
    const java = await findJava(process.env);
    if ('missing' in java) throw new Error(java.missing);
    const hash = createHash('sha256').update(java.found.build);
    for (const file of ['pom.xml', 'Peer.java']) hash.update(await readFile(join(SOURCES, file)));
    const folder = await folderMadeOnce(
      join(cacheFolder(process.env), `kafka-streams-peer-${hash.digest('hex').slice(0, 16)}`),
      isComplete,
      async (fresh) => {
        const maven = await findMaven(process.env);
        if ('missing' in maven) throw new Error(maven.missing);
        options.onProgress('Fetching Kafka Streams with Maven, and compiling its side of the benchmark (once)');
        const lib = join(fresh, 'lib');
        await copyFile(join(SOURCES, 'pom.xml'), join(fresh, 'pom.xml'));
        const goal = [`${dependencyPlugin}:copy-dependencies`, '-DincludeScope=runtime', `-DoutputDirectory=${lib}`];
        await run(maven.found, ['-q', '-B', '-f', join(fresh, 'pom.xml'), ...goal], {
          deadlineMs: 600_000,
          env: { ...process.env, JAVA_HOME: java.found.home },
        });
        await run(
          join(java.found.home, 'bin', 'javac'),
          ['-cp', join(lib, '*'), '-d', join(fresh, 'classes'), join(SOURCES, 'Peer.java')],
          {
            deadlineMs: 120_000,
          },
        );
      },
    );
    return new Peer(java.found.command, [join(folder, 'lib', '*'), join(folder, 'classes')].join(delimiter), options);
  }

  command(args: readonly (string | number)[]): Command {
    const jvm = ['-Xmx512m', '-XX:+UseSerialGC', `-Djava.io.tmpdir=${this.#temporary}`, '-cp', this.#classPath];
    return { file: this.#java, args: [...jvm, 'Peer', ...args.map(String)], env: { BROKERS: this.#brokers } };
  }

  start(...args: readonly (string | number)[]): Job {
    return new Job(`Peer ${args.join(' ')}`, this.command(args), this.#signal);
  }

  async call<T>(...args: readonly (string | number)[]): Promise<T> {
    return await this.start(...args).result<T>(CALL_DEADLINE_MS);
  }
}

async function isComplete(folder: string): Promise<boolean> {
  return await stat(join(folder, 'classes', 'Peer.class')).then(
    () => true,
    () => false,
  );
}
