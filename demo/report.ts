import type { FlightsAnswer, LedgerAnswer } from './answers.ts';
import type { ColumnResult, PipelineResult } from './column-run.ts';
import type { Count } from './counts.ts';
import { PIPELINES, type PipelineName } from './guarantees.ts';

export interface Report {
  readonly ok: boolean;
  /** Why not; empty when `ok`. */
  readonly problems: readonly string[];
  readonly columns: readonly ColumnResult[];
  readonly flights: FlightsAnswer;
  readonly ledger: LedgerAnswer;
}

/** The exact column must be exact, and the others must show a fault: a demonstration in which nothing went wrong proves nothing. */
export function judge(columns: readonly ColumnResult[], flights: FlightsAnswer, ledger: LedgerAnswer): Report {
  const problems: string[] = [];
  for (const { column, kills, pipelines } of columns) {
    if (kills === 0) problems.push(`${column.title}: no worker was killed`);
    const faults = pipelines.flatMap(({ name, kafka, postgres }) =>
      [...faultsOf(`${name} in Kafka`, kafka), ...faultsOf(`${name} in Postgres`, postgres)].map((fault) => `${column.title}: ${fault}`),
    );
    if (column.exact) problems.push(...faults);
    else if (faults.length === 0) problems.push(`${column.title}: no kill has landed, so it shows no fault`);
    if (!column.exact) continue;
    for (const { name, recordsIn, deadLetters, kafka } of pipelines) {
      if (kafka.recordsOut + deadLetters !== recordsIn) {
        problems.push(`${column.title}: ${name}: ${recordsIn} in, but ${kafka.recordsOut} out and ${deadLetters} dead letters`);
      }
    }
  }
  if (!flights.equal) problems.push("the sink's table and the raw file give different answers");
  if (!ledger.sound) problems.push('the ledger is not sound');
  return { ok: problems.length === 0, problems, columns, flights, ledger };
}

function faultsOf(place: string, { lost, duplicated }: Count): string[] {
  return [...(lost > 0 ? [`${lost} lost of ${place}`] : []), ...(duplicated > 0 ? [`${duplicated} too many of ${place}`] : [])];
}

export function reportJson(report: Report): string {
  return JSON.stringify({
    ok: report.ok,
    kills: report.columns.reduce((sum, { kills }) => sum + kills, 0),
    problems: report.problems,
    pipelines: report.columns.flatMap(({ column, pipelines }) =>
      pipelines.map(({ name, recordsIn, deadLetters, kafka, postgres }) => ({
        name: `${name} ${column.guarantee}`,
        guarantee: column.guarantee,
        recordsIn,
        deadLetters,
        kafka,
        postgres,
      })),
    ),
    sqlAnswersEqual: report.flights.equal,
    ledgerSound: report.ledger.sound,
  });
}

const LABEL_WIDTH = 30;
const COLUMN_WIDTH = 27;

export function reportTable(report: Report): string {
  const { columns, flights, ledger } = report;
  const lines: string[] = [];
  const row = (label: string, cells: readonly string[]): void => {
    lines.push(label.padEnd(LABEL_WIDTH) + cells.map((cell) => cell.padStart(COLUMN_WIDTH)).join(''));
  };
  row(
    '',
    columns.map(({ column }) => column.title),
  );
  row(
    'workers killed (SIGKILL)',
    columns.map(({ kills }) => number(kills)),
  );
  for (const name of PIPELINES) {
    const of = (pick: (result: PipelineResult) => number): string[] =>
      columns.map(({ pipelines }) => number(pick(pipelineOf(pipelines, name))));
    lines.push('');
    row(
      `${name}: records in`,
      of(({ recordsIn }) => recordsIn),
    );
    if (name === 'flights')
      row(
        '  dead letters',
        of(({ deadLetters }) => deadLetters),
      );
    for (const side of ['kafka', 'postgres'] as const) {
      const title = side === 'kafka' ? 'Kafka, read_committed' : 'Postgres';
      row(
        `  ${title}: out`,
        of((result) => result[side].recordsOut),
      );
      row(
        `  ${' '.repeat(title.length)}  lost`,
        of((result) => result[side].lost),
      );
      row(
        `  ${' '.repeat(title.length)}  duplicated`,
        of((result) => result[side].duplicated),
      );
    }
  }
  const exact = columns.find(({ column }) => column.exact);
  const payments = exact === undefined ? undefined : pipelineOf(exact.pipelines, 'payments');
  lines.push('');
  if (payments !== undefined) {
    const sentTwice = payments.recordsIn - payments.postgres.recordsOut - payments.postgres.lost + payments.postgres.duplicated;
    lines.push(
      `${number(sentTwice)} transfers were sent twice by their sender: two records each in Kafka, which no Kafka transaction can see. The sink's keys can.`,
    );
  }
  lines.push(
    `Delays at ${flights.airports} airports, from the table and as one SQL query over the raw file: ${flights.equal ? 'equal' : 'DIFFERENT'}.`,
    `  Most delayed: ${flights.worst.map(({ origin, delayed, flights: all, mean }) => `${origin} ${delayed} of ${all} (mean ${Number(mean).toFixed(1)} min)`).join(', ')}.`,
    `Ledger: ${number(ledger.booked)} booked, ${number(ledger.declined)} declined, sum of all balances ${money(ledger.totalCents)}: ${ledger.sound ? 'sound' : 'NOT SOUND'}.`,
    '',
    report.ok
      ? 'Exactly-once was exact, and the other two were not.'
      : `The demonstration failed:\n${report.problems.map((problem) => `  - ${problem}`).join('\n')}`,
  );
  return lines.join('\n');
}

function pipelineOf(pipelines: readonly PipelineResult[], name: PipelineName): PipelineResult {
  const found = pipelines.find((pipeline) => pipeline.name === name);
  if (found === undefined) throw new Error(`no result for ${name}`);
  return found;
}

function number(value: number): string {
  return value.toLocaleString('en-US');
}

function money(cents: string): string {
  return (Number(cents) / 100).toLocaleString('en-US', { minimumFractionDigits: 2 });
}
