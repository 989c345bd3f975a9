import { setTimeout as sleep } from 'node:timers/promises';
import { type Engine, KAFKA_STREAMS, startEngine, TIDEMARK } from './engines.ts';
import { megabytes, median, ratio, thousands, whole } from './figures.ts';
import type { Job } from './job.ts';
import { verify } from './map-rounds.ts';
import type { Section } from './section.ts';
import { withTopics, type Workbench } from './workbench.ts';

const RECORDS = 5_000_000;
const DRAIN_DEADLINE_MS = 600_000;
const SAMPLE_MS = 1_000;
/** The last third of the time may use so much more than the first, for what V8 compiles and lets lie meanwhile. */
const FLAT = 1.1;

interface LongRun {
  readonly perSecond: number;
  readonly steadyPerSecond: number;
  /** Resident set, bytes, once a second. */
  readonly memory: readonly number[];
}

/** Five million records through one process, while its memory is watched. */
export async function memoryRun(workbench: Workbench): Promise<Section> {
  const { peer, onProgress } = workbench;
  const input = workbench.name('in');
  return await withTopics(workbench, [input], async () => {
    onProgress(`Writing ${whole(RECORDS)} records`);
    await peer.call('generate', input, RECORDS);
    const ours = await longRun(workbench, TIDEMARK, input);
    const theirs = await longRun(workbench, KAFKA_STREAMS, input);
    return report(ours, theirs);
  });
}

async function longRun(workbench: Workbench, engine: Engine, input: string): Promise<LongRun> {
  const { peer, onProgress } = workbench;
  const job = { group: workbench.name('long'), in: input, out: workbench.name('out') };
  return await withTopics(workbench, [job.out], async () => {
    const clock = peer.start('drain', job.group, input);
    await clock.running();
    const process = startEngine(workbench, engine, job);
    const drained = new AbortController();
    try {
      await process.running();
      const sampling = sample(process, drained.signal);
      const drain = await Promise.race([clock.result<Omit<LongRun, 'memory'>>(DRAIN_DEADLINE_MS), process.failed()]);
      drained.abort();
      const memory = await sampling;
      onProgress(`${engine.title}: ${thousands(drain.perSecond)} records/s, at most ${megabytes(Math.max(...memory))}`);
      await process.stop();
      await verify(workbench, engine, job.out, RECORDS);
      return { ...drain, memory };
    } finally {
      drained.abort();
      await Promise.all([process.stop(), clock.stop()]);
    }
  });
}

async function sample(job: Job, until: AbortSignal): Promise<number[]> {
  const samples: number[] = [];
  while (!until.aborted) {
    samples.push((await job.usage()).memory);
    await sleep(SAMPLE_MS, undefined, { signal: until }).catch(() => undefined);
  }
  return samples;
}

function report(ours: LongRun, theirs: LongRun): Section {
  const [first, , last] = thirds(ours.memory);
  const row = (engine: Engine, { memory, perSecond }: LongRun): string[] => [
    engine.title,
    ...thirds(memory).map(megabytes),
    megabytes(Math.max(...memory)),
    thousands(perSecond),
  ];
  return {
    title: `Memory over ${whole(RECORDS)} records`,
    method:
      'The same job, one process, one run each. Resident set of the process once a second: the median of each third of the time, and the most. ' +
      'Outputs were verified as above.',
    columns: ['engine', 'first third', 'second third', 'last third', 'most', 'records/s'],
    rows: [row(TIDEMARK, ours), row(KAFKA_STREAMS, theirs)],
    notes: [
      `In a run this long, compiling the code while it warms up hardly counts, which the JVM does more of: Tidemark is faster by ${ratio(ours.perSecond / theirs.perSecond)}.`,
    ],
    targets: [
      {
        wanted: `flat: the last third at most ${Math.round((FLAT - 1) * 100)} % above the first`,
        found: `${megabytes(first)}, then ${megabytes(last)}`,
        holds: last <= first * FLAT,
      },
    ],
  };
}

/** The median of each third. */
function thirds(samples: readonly number[]): [first: number, second: number, last: number] {
  const third = Math.max(1, Math.floor(samples.length / 3));
  const second = samples.slice(third, -third);
  return [median(samples.slice(0, third)), median(second.length === 0 ? samples : second), median(samples.slice(-third))];
}
