import { setTimeout as sleep } from 'node:timers/promises';
import { startEngine, TIDEMARK } from './engines.ts';
import { megabytes, median, thousands, whole } from './figures.ts';
import type { Job } from './job.ts';
import { verify } from './map-rounds.ts';
import type { Section } from './section.ts';
import { withTopics, type Workbench } from './workbench.ts';

const RECORDS = 5_000_000;
const DRAIN_DEADLINE_MS = 600_000;
const SAMPLE_MS = 1_000;
/** The last third of the time may use so much more than the first, for what V8 compiles and lets lie meanwhile. */
const FLAT = 1.1;

/** Five million records through one process of Tidemark, while its memory is watched. */
export async function memoryRun(workbench: Workbench): Promise<Section> {
  const { peer, onProgress } = workbench;
  const job = { group: workbench.name('memory'), in: workbench.name('in'), out: workbench.name('out') };
  return await withTopics(workbench, [job.in, job.out], async () => {
    onProgress(`Writing ${whole(RECORDS)} records`);
    await peer.call('generate', job.in, RECORDS);
    const clock = peer.start('drain', job.group, job.in);
    await clock.running();
    const process = startEngine(workbench, TIDEMARK, job);
    const drained = new AbortController();
    try {
      await process.running();
      onProgress('Running, one look at the memory each second');
      const sampling = sample(process, drained.signal);
      const { perSecond } = await Promise.race([clock.result<{ perSecond: number }>(DRAIN_DEADLINE_MS), process.failed()]);
      drained.abort();
      const samples = await sampling;
      await process.stop();
      await verify(workbench, TIDEMARK, job.out, RECORDS);
      return report(samples, perSecond);
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

function report(samples: readonly number[], perSecond: number): Section {
  const third = Math.max(1, Math.floor(samples.length / 3));
  const parts = [samples.slice(0, third), samples.slice(third, -third), samples.slice(-third)].filter((part) => part.length > 0);
  const first = median(parts[0]!);
  const last = median(parts.at(-1)!);
  return {
    title: 'Memory over 5,000,000 records',
    method:
      `The same job in one process of Tidemark: resident set of the whole process once a second, ${samples.length} times. ` +
      'The output was verified as above.',
    columns: ['part of the time', 'median', 'max'],
    rows: parts.map((part, i) => [`${['first', 'second', 'third'][i]} third`, megabytes(median(part)), megabytes(Math.max(...part))]),
    notes: [`${thousands(perSecond)} records/s over the whole run.`],
    targets: [
      {
        wanted: `flat: the median of the last third at most ${Math.round((FLAT - 1) * 100)} % above that of the first`,
        found: `${megabytes(first)} and ${megabytes(last)}`,
        holds: last <= first * FLAT,
      },
    ],
  };
}
