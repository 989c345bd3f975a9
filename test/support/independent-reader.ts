import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { cacheFolder, folderMadeOnce } from '../../src/devstack/cache-folder.ts';
import { findJava } from '../../src/devstack/java.ts';
import { run } from '../../src/devstack/server-process.ts';

export interface IndependentRecord {
  readonly partition: number;
  readonly offset: bigint;
  readonly timestamp: number;
  readonly leaderEpoch: number | null;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: readonly { readonly key: string; readonly value: Buffer | null }[];
}

export interface PartitionEnds {
  readonly partition: number;
  readonly logStart: bigint;
  /** Below `highWatermark` exactly while a transaction is open in this partition. */
  readonly lastStable: bigint;
  readonly highWatermark: bigint;
}

export interface Reading {
  /** In offset order within each partition. */
  readonly records: readonly IndependentRecord[];
  /** As they were when the reading began; it went exactly up to there. Transactions that were just ending had ended. */
  readonly partitions: readonly PartitionEnds[];
}

export interface CommittedOffset {
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
  readonly leaderEpoch: number | null;
  readonly metadata: string;
}

export interface OpenTransaction {
  readonly partition: number;
  readonly producerId: bigint;
  readonly producerEpoch: number;
  readonly startOffset: bigint;
}

export interface ReadOptions {
  /**
   * Default `read-committed`, up to the last stable offset, which gets 5 s to reach the high watermark: a committed transaction's markers arrive in
   * each partition by themselves, and later than in its group. `read-uncommitted` goes up to the high watermark.
   */
  readonly isolation?: 'read-committed' | 'read-uncommitted';
  /** Default 60 s. */
  readonly deadlineMs?: number;
}

/**
 * The judge in integration tests: reads with Kafka's own Java client, in a process of its own, and shares no code with what is tested.
 * Every call throws after its deadline (30 s where none is given) rather than answer with less than all. Answers one call at a time.
 */
export class IndependentReader {
  readonly #process: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #lines: Interface;
  readonly #ended: Promise<string>;
  #queue: Promise<unknown> = Promise.resolve();

  private constructor(process: ChildProcessByStdio<Writable, Readable, Readable>) {
    this.#process = process;
    this.#lines = createInterface({ input: process.stdout, crlfDelay: Number.POSITIVE_INFINITY });
    let errors = '';
    process.stderr.on('data', (chunk: Buffer) => {
      errors = (errors + chunk.toString()).slice(-4_000);
    });
    process.stdin.on('error', () => undefined);
    this.#ended = new Promise((resolve) => {
      process.once('close', (code, signal) => resolve(`the reader's process has ended (${code ?? signal}). ${errors}`));
      process.once('error', (error) => resolve(`the reader's process could not be started: ${error.message}`));
    });
  }

  /** `jars` from `kafkaJars()`, or `inject('kafkaJars')`. Needs a JDK, whose compiler runs once per version of the reader. */
  static async open(options: { readonly brokers: string; readonly jars: string }): Promise<IndependentReader> {
    const java = await findJava(process.env);
    if ('missing' in java) throw new Error(`The independent reader cannot run: ${java.missing}.`);
    const classes = await compiled(options.jars, java.found.home);
    const child = spawn(
      java.found.command,
      [
        '-Xmx512m',
        '-XX:+UseSerialGC',
        '-XX:TieredStopAtLevel=1',
        '-cp',
        [classes, join(options.jars, '*')].join(delimiter),
        'IndependentReader',
        options.brokers,
      ],
      { stdio: ['pipe', 'pipe', 'pipe'] },
    );
    return new IndependentReader(child);
  }

  /** Everything that is in the topic now, from the log start of each partition. */
  async read(topic: string, options: ReadOptions = {}): Promise<Reading> {
    const records: IndependentRecord[] = [];
    const last = await this.#call(
      { do: 'read', topic, isolation: options.isolation ?? 'read-committed' },
      options.deadlineMs ?? 60_000,
      (line) => records.push(recordOf(line as RecordLine)),
    );
    return { records: records.toSorted(byPartitionAndOffset), partitions: endsOf(last) };
  }

  async ends(topic: string, deadlineMs = 30_000): Promise<readonly PartitionEnds[]> {
    return endsOf(await this.#call({ do: 'ends', topic }, deadlineMs));
  }

  /** What the group has committed; waits for the outcome of open transactions that hold offsets. */
  async groupOffsets(group: string, deadlineMs = 30_000): Promise<readonly CommittedOffset[]> {
    const last = (await this.#call({ do: 'groupOffsets', group }, deadlineMs)) as {
      offsets: (Omit<CommittedOffset, 'offset'> & { offset: string })[];
    };
    return last.offsets.map((row) => ({ ...row, offset: BigInt(row.offset) }));
  }

  async openTransactions(topic: string, deadlineMs = 30_000): Promise<readonly OpenTransaction[]> {
    const last = (await this.#call({ do: 'openTransactions', topic }, deadlineMs)) as {
      transactions: { partition: number; producerId: string; producerEpoch: number; startOffset: string }[];
    };
    return last.transactions.map((row) => ({ ...row, producerId: BigInt(row.producerId), startOffset: BigInt(row.startOffset) }));
  }

  async close(): Promise<void> {
    this.#process.stdin.end();
    const timer = setTimeout(() => this.#process.kill('SIGKILL'), 5_000);
    await this.#ended;
    clearTimeout(timer);
  }

  async #call(request: object, deadlineMs: number, onLine: (line: unknown) => void = unexpected): Promise<unknown> {
    const turn = this.#queue.then(async () => await this.#callNow({ ...request, deadlineMs }, deadlineMs, onLine));
    this.#queue = turn.catch(() => undefined);
    return await turn;
  }

  async #callNow(request: object, deadlineMs: number, onLine: (line: unknown) => void): Promise<unknown> {
    let onText: ((text: string) => void) | undefined;
    let timer: NodeJS.Timeout | undefined;
    try {
      const answered = new Promise<unknown>((resolve, reject) => {
        onText = (text) => {
          try {
            const line = JSON.parse(text) as { done?: true; error?: string };
            if (line.error !== undefined) reject(new Error(`Independent reader, ${JSON.stringify(request)}: ${line.error}`));
            else if (line.done === true) resolve(line);
            else onLine(line);
          } catch (error) {
            reject(error instanceof Error ? error : new Error(String(error)));
          }
        };
        this.#lines.on('line', onText);
        // The reader keeps the deadline itself and says more; this is for one that hangs.
        timer = setTimeout(() => {
          this.#process.kill('SIGKILL');
          reject(new Error(`Independent reader, ${JSON.stringify(request)}: no answer within ${(deadlineMs + 15_000) / 1000} s.`));
        }, deadlineMs + 15_000);
      });
      this.#process.stdin.write(`${JSON.stringify(request)}\n`);
      const ended = this.#ended.then((how) => {
        throw new Error(`Independent reader, ${JSON.stringify(request)}: ${how}`);
      });
      return await Promise.race([answered, ended]);
    } finally {
      clearTimeout(timer);
      if (onText !== undefined) this.#lines.removeListener('line', onText);
    }
  }
}

/** One topic read by a reader of its own. Where a test reads more than once, `IndependentReader.open` saves a second each time. */
export async function readTopic(
  cluster: { readonly brokers: string; readonly jars: string },
  topic: string,
  options: ReadOptions = {},
): Promise<Reading> {
  const reader = await IndependentReader.open(cluster);
  try {
    return await reader.read(topic, options);
  } finally {
    await reader.close();
  }
}

async function compiled(jars: string, javaHome: string): Promise<string> {
  const source = join(import.meta.dirname, 'IndependentReader.java');
  const identity = createHash('sha256')
    .update(await readFile(source))
    .update(jars)
    .update(javaHome)
    .digest('hex')
    .slice(0, 16);
  return await folderMadeOnce(
    join(cacheFolder(process.env), `independent-reader-${identity}`),
    async (folder) =>
      await stat(join(folder, 'IndependentReader.class')).then(
        () => true,
        () => false,
      ),
    async (fresh) => {
      await run(join(javaHome, 'bin', 'javac'), ['-cp', join(jars, '*'), '-d', fresh, source], { deadlineMs: 120_000 });
    },
  );
}

interface RecordLine {
  readonly p: number;
  readonly o: string;
  readonly t: number;
  readonly e: number | null;
  readonly k: string | null;
  readonly v: string | null;
  readonly h: readonly (readonly [string, string | null])[];
}

function recordOf(line: RecordLine): IndependentRecord {
  return {
    partition: line.p,
    offset: BigInt(line.o),
    timestamp: line.t,
    leaderEpoch: line.e,
    key: bytes(line.k),
    value: bytes(line.v),
    headers: line.h.map(([key, value]) => ({ key, value: bytes(value) })),
  };
}

function endsOf(last: unknown): readonly PartitionEnds[] {
  const { partitions } = last as { partitions: { partition: number; logStart: string; lastStable: string; highWatermark: string }[] };
  return partitions.map((row) => ({
    partition: row.partition,
    logStart: BigInt(row.logStart),
    lastStable: BigInt(row.lastStable),
    highWatermark: BigInt(row.highWatermark),
  }));
}

function bytes(base64: string | null): Buffer | null {
  return base64 === null ? null : Buffer.from(base64, 'base64');
}

function byPartitionAndOffset(a: IndependentRecord, b: IndependentRecord): number {
  return a.partition - b.partition || (a.offset < b.offset ? -1 : 1);
}

function unexpected(line: unknown): never {
  throw new Error(`Independent reader: unexpected line ${JSON.stringify(line)}`);
}
