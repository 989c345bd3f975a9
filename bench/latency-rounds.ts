import { type Engine, KAFKA_STREAMS, PLAIN_KAFKAJS, startEngine, TIDEMARK } from './engines.ts';
import { median } from './figures.ts';
import type { Section } from './section.ts';
import { withTopics, type Workbench } from './workbench.ts';

const ENGINES: readonly Engine[] = [KAFKA_STREAMS, TIDEMARK, PLAIN_KAFKAJS];
const RATE = 5_000;
const SECONDS = 20;
/** The probe leaves them out. */
const WARM_UP_SECONDS = 5;
/** So long it waits for the last outputs. */
const PATIENCE_SECONDS = 3;
const QUANTILES = ['p50', 'p90', 'p99', 'p99.9', 'max'] as const;

type Latency = Readonly<Record<(typeof QUANTILES)[number] | 'outputs', number>>;

/** From the sending of a record until its output can be read with read_committed, at a steady rate. */
export async function latencyRounds(workbench: Workbench, rounds: number): Promise<Section> {
  const found = new Map<Engine, Latency[]>(ENGINES.map((engine) => [engine, []]));
  for (let round = 0; round < rounds; round++) {
    for (let turn = 0; turn < ENGINES.length; turn++) {
      const engine = ENGINES[(round + turn) % ENGINES.length]!;
      const latency = await latencyOnce(workbench, engine);
      found.get(engine)!.push(latency);
      workbench.onProgress(
        `Round ${round + 1} of ${rounds}, ${engine.title}: ${QUANTILES.map((quantile) => `${quantile} ${latency[quantile]}`).join(', ')} ms`,
      );
    }
  }
  return report(found, rounds);
}

async function latencyOnce(workbench: Workbench, engine: Engine): Promise<Latency> {
  const job = { group: workbench.name('latency'), in: workbench.name('in'), out: workbench.name('out') };
  return await withTopics(workbench, [job.in, job.out], async () => {
    const process = startEngine(workbench, engine, job);
    try {
      await process.running();
      const seconds = SECONDS + WARM_UP_SECONDS;
      return await Promise.race([workbench.peer.call<Latency>('latency', job.in, job.out, RATE, seconds), process.failed()]);
    } finally {
      await process.stop();
    }
  });
}

function report(found: ReadonlyMap<Engine, readonly Latency[]>, rounds: number): Section {
  const of = (engine: Engine, quantile: (typeof QUANTILES)[number]): number[] => found.get(engine)!.map((latency) => latency[quantile]);
  const ours = median(of(TIDEMARK, 'p99'));
  const theirs = median(of(KAFKA_STREAMS, 'p99'));
  return {
    title: 'Latency at 5,000 records per second, milliseconds',
    method:
      `The same job, ${SECONDS} s at a steady rate (after ${WARM_UP_SECONDS} s that are left out), from the call that sends a record to the moment at which a ` +
      `read_committed reader has its output; ${rounds} rounds, of which the median of each quantile is shown. A commit every 100 ms alone means 50 ms on average.`,
    columns: ['engine', ...QUANTILES, 'came in time'],
    rows: ENGINES.map((engine) => [
      engine.title,
      ...QUANTILES.map((quantile) => median(of(engine, quantile)).toFixed(0)),
      inTime(found.get(engine)!),
    ]),
    notes: [
      `Came in time: the share of outputs that could be read ${PATIENCE_SECONDS} s after the last record was sent; only these have a latency.`,
    ],
    targets: [
      {
        wanted: 'p99 not above that of Kafka Streams',
        found: `${ours.toFixed(0)} ms against ${theirs.toFixed(0)} ms`,
        holds: ours <= theirs,
      },
    ],
  };
}

/** An engine that falls behind has no latency, so it has to be told. */
function inTime(found: readonly Latency[]): string {
  const share = median(found.map(({ outputs }) => outputs / (RATE * SECONDS)));
  return `${Math.min(100, share * 100).toFixed(0)} %`;
}
