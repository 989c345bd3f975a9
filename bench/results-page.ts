import { availableParallelism } from 'node:os';
import { type Section, sectionText } from './section.ts';

/** RESULTS.md: what a whole run has found, and how to repeat it. */
export function resultsPage(sections: readonly Section[], command: string, at: Date): string {
  const cores = availableParallelism();
  const intro = [
    '# Measured',
    '',
    `Written by \`${command}\` on ${at.toISOString().slice(0, 10)}, Node ${process.versions.node}, on a ${cores}-core machine shared by broker, job, database and`,
    'generator. Repeats vary by 20 to 30 %, and another machine has other figures: use the ratios. Nothing here is asserted by a test; a wrong output,',
    'though, is an error of the benchmark.',
    '',
    'Kafka 4.1 with one broker, Kafka Streams 4.1 (`exactly_once_v2`, string serdes and Jackson, `-Xmx512m -XX:+UseSerialGC`), kafkajs 2.2.4 by hand with one transactional',
    'producer per partition and a first retry after 5 ms. One part alone: `npm run bench -- --only map` (or `latency`, `memory`, `sink`).',
    '',
  ];
  return `${[...intro, ...sections.map((section) => `${sectionText(section)}\n`)].join('\n').trimEnd()}\n`;
}
