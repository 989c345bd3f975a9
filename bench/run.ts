/**
 * `npm run bench`: Tidemark beside Kafka Streams and plain kafkajs, on this machine, in one run. Nothing is asserted by time, and the exit code is 0
 * whatever the figures are; a wrong output is an error.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { latencyRounds } from './latency-rounds.ts';
import { mapRounds } from './map-rounds.ts';
import { memoryRun } from './memory-run.ts';
import { resultsPage } from './results-page.ts';
import { type Section, sectionText } from './section.ts';
import { sinkRounds } from './sink-rounds.ts';
import { withWorkbench, type Workbench } from './workbench.ts';

const PARTS = ['map', 'latency', 'memory', 'sink'] as const;
type Part = (typeof PARTS)[number];

const USAGE = `npm run bench -- [options]
  --rounds N       how often each engine has its turn (3)
  --records N      of the map job (500000)
  --only PART      ${PARTS.join(', ')}; may be given more than once (all)
  --write          write bench/RESULTS.md; needs all parts`;

const { values: options } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    records: { type: 'string', default: '500000' },
    only: { type: 'string', multiple: true },
    write: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

function wholeNumber(name: 'rounds' | 'records', lowest: number): number {
  const value = Number(options[name]);
  if (Number.isSafeInteger(value) && value >= lowest) return value;
  throw new Error(`--${name} needs a whole number from ${lowest} on, not '${options[name]}'\n${USAGE}`);
}

function chosenParts(): readonly Part[] {
  const { only } = options;
  if (only === undefined) return PARTS;
  const unknown = only.find((part) => !PARTS.some((known) => known === part));
  if (unknown !== undefined) throw new Error(`--only ${unknown}: there is no such part\n${USAGE}`);
  return PARTS.filter((part) => only.includes(part));
}

function progress(line: string): void {
  process.stderr.write(`${new Date().toISOString().slice(11, 19)}  ${line}\n`);
}

async function measure(part: Part, workbench: Workbench): Promise<Section> {
  const rounds = wholeNumber('rounds', 1);
  switch (part) {
    case 'map':
      return await mapRounds(workbench, rounds, wholeNumber('records', 10_000));
    case 'latency':
      return await latencyRounds(workbench, rounds);
    case 'memory':
      return await memoryRun(workbench);
    case 'sink':
      return await sinkRounds(workbench, rounds);
  }
}

async function bench(signal: AbortSignal): Promise<void> {
  const parts = chosenParts();
  const command = `npm run bench -- --rounds ${wholeNumber('rounds', 1)} --records ${wholeNumber('records', 10_000)} --write`;
  if (options.write && parts.length < PARTS.length) throw new Error(`--write needs all parts: leave out --only\n${USAGE}`);
  const sections: Section[] = [];
  await withWorkbench({ signal, onProgress: progress }, async (workbench) => {
    for (const part of parts) {
      signal.throwIfAborted();
      const section = await measure(part, workbench);
      console.log(`\n${sectionText(section)}\n`);
      sections.push(section);
    }
  });
  const missed = sections.flatMap(({ targets }) => targets).filter(({ holds }) => !holds);
  console.log(missed.length === 0 ? 'All targets hold.' : `MISSED: ${missed.map(({ wanted }) => wanted).join('; ')}.`);
  if (options.write) await writeFile(join(import.meta.dirname, 'RESULTS.md'), resultsPage(sections, command, new Date()));
}

async function main(): Promise<number> {
  if (options.help) {
    console.log(USAGE);
    return 0;
  }
  const interrupted = new AbortController();
  const onSignal = (): void => interrupted.abort(new Error('interrupted'));
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  try {
    await bench(interrupted.signal);
    return 0;
  } catch (error) {
    if (interrupted.signal.aborted) return 130;
    process.stderr.write(`The benchmark failed: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
    return 1;
  } finally {
    process.removeListener('SIGINT', onSignal);
    process.removeListener('SIGTERM', onSignal);
  }
}

process.exitCode = await main();
