import { type Engine, KAFKA_STREAMS, KAFKA_STREAMS_2, PLAIN_KAFKAJS, startEngine, TIDEMARK } from './engines.ts';
import { median, pairedRatio, ratio, thousands, whole } from './figures.ts';
import type { Section } from './section.ts';
import { withTopics, type Workbench } from './workbench.ts';

const ENGINES: readonly Engine[] = [KAFKA_STREAMS, TIDEMARK, KAFKA_STREAMS_2, PLAIN_KAFKAJS];
const DRAIN_DEADLINE_MS = 600_000;
const WANTED_RATIO = 2.5;

interface Drain {
  readonly perSecond: number;
  readonly steadyPerSecond: number;
}

interface Figures {
  readonly perSecond: number[];
  readonly steadyPerSecond: number[];
  readonly cpuSeconds: number[];
}

/** The map job in every engine, over the same input, round by round. */
export async function mapRounds(workbench: Workbench, rounds: number, records: number): Promise<Section> {
  const { peer, onProgress } = workbench;
  const figures = new Map<Engine, Figures>(ENGINES.map((engine) => [engine, { perSecond: [], steadyPerSecond: [], cpuSeconds: [] }]));
  const input = workbench.name('in');
  await withTopics(workbench, [input], async () => {
    onProgress(`Writing ${whole(records)} records`);
    const { bytes } = await peer.call<{ bytes: number }>('generate', input, records);
    onProgress(`Written; a record has ${bytes} bytes`);
    for (let round = 0; round < rounds; round++) {
      for (let turn = 0; turn < ENGINES.length; turn++) {
        // Each round begins with another engine, so that none always runs behind the same one.
        const engine = ENGINES[(round + turn) % ENGINES.length]!;
        const { drain, cpuSeconds } = await mapOnce(workbench, engine, input, records);
        const own = figures.get(engine)!;
        own.perSecond.push(drain.perSecond);
        own.steadyPerSecond.push(drain.steadyPerSecond);
        own.cpuSeconds.push(cpuSeconds);
        onProgress(
          `Round ${round + 1} of ${rounds}, ${engine.title}: ${thousands(drain.perSecond)} records/s, ${thousands(drain.steadyPerSecond)} steady`,
        );
      }
    }
  });
  return report(figures, rounds, records);
}

async function mapOnce(
  workbench: Workbench,
  engine: Engine,
  input: string,
  records: number,
): Promise<{ readonly drain: Drain; readonly cpuSeconds: number }> {
  const { peer } = workbench;
  const job = { group: workbench.name('map'), in: input, out: workbench.name('out') };
  return await withTopics(workbench, [job.out], async () => {
    // The clock runs before the engine starts, so that its own start costs the engine nothing.
    const clock = peer.start('drain', job.group, input);
    await clock.running();
    const process = startEngine(workbench, engine, job);
    try {
      const drain = await Promise.race([clock.result<Drain>(DRAIN_DEADLINE_MS), process.failed()]);
      const { cpuSeconds } = await process.usage();
      await process.stop();
      await verify(workbench, engine, job.out, records);
      return { drain, cpuSeconds };
    } finally {
      await Promise.all([process.stop(), clock.stop()]);
    }
  });
}

/** A figure for an output that is wrong would be worth nothing. */
export async function verify({ peer }: Workbench, engine: Engine, out: string, records: number): Promise<void> {
  const found = await peer.call<{ records: number; distinct: number; notProcessed: number }>('verify', out);
  if (found.records === records && found.distinct === records && found.notProcessed === 0) return;
  throw new Error(`${engine.title}: the output is wrong: ${JSON.stringify(found)} instead of ${records} records, each once and processed`);
}

function report(figures: ReadonlyMap<Engine, Figures>, rounds: number, records: number): Section {
  const ours = figures.get(TIDEMARK)!;
  const ratioTo = (engine: Engine): number => pairedRatio(ours.perSecond, figures.get(engine)!.perSecond);
  const found = ratioTo(KAFKA_STREAMS);
  const foundSteady = pairedRatio(ours.steadyPerSecond, figures.get(KAFKA_STREAMS)!.steadyPerSecond);
  return {
    title: 'Map job, records per second',
    method:
      `JSON in, one field set, JSON out; exactly-once with a commit every 100 ms; ${whole(records)} records of 187 bytes, 4 partitions; ${rounds} rounds in ` +
      'which the engines take turns over the same input, each with a topic and a group of its own. The clock is the offsets of the group as an observer ' +
      '(which has warmed up before) sees them, from the first commit to the last, so starting is left out; `steady` leaves out the first tenth of the records too. Every output was read ' +
      'with read_committed and held each record once, processed. CPU is that of the job alone, its start included.',
    columns: ['engine', 'median', 'min', 'max', 'steady median', 'CPU s', 'Tidemark is faster by'],
    rows: ENGINES.map((engine) => {
      const { perSecond, steadyPerSecond, cpuSeconds } = figures.get(engine)!;
      return [
        engine.title,
        ...[median(perSecond), Math.min(...perSecond), Math.max(...perSecond), median(steadyPerSecond)].map(thousands),
        median(cpuSeconds).toFixed(1),
        engine === TIDEMARK ? '' : ratio(ratioTo(engine)),
      ];
    }),
    notes: [
      'The ratios are paired: computed within each round, of which the median is shown.',
      'These runs take a few seconds, in which a JVM is still warming up. The run over 5,000,000 records below shows both warm.',
    ],
    targets: [
      {
        wanted: `at least ${WANTED_RATIO} times Kafka Streams with one thread`,
        found: `${found.toFixed(2)} times (${foundSteady.toFixed(2)} in the steady part)`,
        holds: found >= WANTED_RATIO,
      },
    ],
  };
}
