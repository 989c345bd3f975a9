/**
 * `npm run demo`: real flights and made-up payments flow through Kafka into Postgres under each of the three guarantees, while worker
 * processes are killed; then everything is counted. Exit code 0: exactly-once was exact and the others were not. 1: otherwise. 130: Ctrl-C.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import pg from 'pg';
import { startStack } from '../src/devstack/stack.ts';
import { askFlights, askLedger } from './answers.ts';
import { type ColumnResult, removeColumn, runColumn } from './column-run.ts';
import { type RawFlight, rawFlightsFile } from './flights-input.ts';
import { COLUMNS } from './guarantees.ts';
import { judge, type Report, reportJson, reportTable } from './report.ts';

const { values: options } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    seed: { type: 'string', default: '1' },
    kills: { type: 'string', default: '5' },
    transfers: { type: 'string', default: '5000' },
    'work-micros': { type: 'string', default: '300' },
    help: { type: 'boolean', default: false },
  },
});

const USAGE = `npm run demo -- [options]
  --json             the last line of standard output is one JSON object
  --kills N          workers to kill per guarantee (5)
  --seed N           of the moments at which they are killed, and of the transfers (1)
  --transfers N      how many (5000)
  --work-micros N    what a record costs a worker, in microseconds (300)`;

function wholeNumber(name: 'seed' | 'kills' | 'transfers' | 'work-micros', lowest: number): number {
  const value = Number(options[name]);
  if (!Number.isSafeInteger(value) || value < lowest)
    throw new Error(`--${name} needs a whole number from ${lowest} on, not '${options[name]}'\n${USAGE}`);
  return value;
}

function progress(line: string): void {
  process.stderr.write(`${new Date().toISOString().slice(11, 19)}  ${line}\n`);
}

async function demonstrate(signal: AbortSignal): Promise<Report> {
  const settings = {
    seed: wholeNumber('seed', 0),
    kills: wholeNumber('kills', 1),
    transfers: wholeNumber('transfers', 1),
    workMicros: wholeNumber('work-micros', 0),
  };
  const stack = await startStack({ ephemeral: true, onProgress: progress });
  progress(`Kafka ${stack.kafka.brokers} (${stack.kafka.how}: ${stack.kafka.why})`);
  progress(`Postgres (${stack.postgres.how}: ${stack.postgres.why})`);
  const stateDirectory = await mkdtemp(join(tmpdir(), 'tidemark-demo-'));
  const pool = new pg.Pool({ connectionString: stack.postgres.url, max: 2, connectionTimeoutMillis: 10_000 });
  pool.on('error', () => undefined);
  const run = Date.now().toString(36);
  try {
    signal.throwIfAborted();
    const rawFile = await rawFlightsFile();
    const flights = JSON.parse(rawFile) as RawFlight[];
    const columns: ColumnResult[] = [];
    for (const column of COLUMNS) {
      progress(
        `${column.title}: ${flights.length} flights and ${settings.transfers} transfers, 2 workers, ${settings.kills} of them to be killed`,
      );
      const base = { run, brokers: stack.kafka.brokers, database: stack.postgres.url, stateDirectory, workers: 2 };
      columns.push(await runColumn(column, flights, pool, { ...base, ...settings, signal, onProgress: progress }));
    }
    const exact = columns.find(({ column }) => column.exact);
    if (exact === undefined) throw new Error('there is no exact column');
    return judge(columns, await askFlights(pool, exact.names, rawFile), await askLedger(pool, exact.names));
  } finally {
    if (stack.kafka.how === 'given' || stack.postgres.how === 'given') {
      for (const column of COLUMNS)
        await removeColumn(column, pool, { run, brokers: stack.kafka.brokers }).catch((error: unknown) => progress(String(error)));
    }
    await pool.end();
    await rm(stateDirectory, { recursive: true, force: true });
    await stack.stop();
  }
}

async function main(): Promise<number> {
  if (options.help) {
    console.log(USAGE);
    return 0;
  }
  const interrupted = new AbortController();
  const onSignal = (): void => {
    if (!interrupted.signal.aborted) progress('Stopping');
    interrupted.abort(new Error('interrupted'));
  };
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  try {
    const report = await demonstrate(interrupted.signal);
    (options.json ? console.error : console.log)(reportTable(report));
    if (options.json) console.log(reportJson(report));
    return report.ok ? 0 : 1;
  } catch (error) {
    if (interrupted.signal.aborted) return 130;
    process.stderr.write(`The demonstration failed: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
    if (options.json) console.log(JSON.stringify({ ok: false, kills: 0, problems: [String(error)], pipelines: [] }));
    return 1;
  } finally {
    process.removeListener('SIGINT', onSignal);
    process.removeListener('SIGTERM', onSignal);
  }
}

process.exitCode = await main();
