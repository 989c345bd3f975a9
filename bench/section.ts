/** What one measurement has to say, for the terminal and for RESULTS.md alike. */
export interface Section {
  readonly title: string;
  /** How it was measured. */
  readonly method: string;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
  readonly notes: readonly string[];
  readonly targets: readonly Target[];
}

export interface Target {
  /** Such as `at least 2.5 times Kafka Streams with one thread`. */
  readonly wanted: string;
  readonly found: string;
  readonly holds: boolean;
}

/** As Markdown, padded so that it can be read as it is. */
export function sectionText({ title, method, columns, rows, notes, targets }: Section): string {
  const lines = [`## ${title}`, '', method, '', ...table(columns, rows), ''];
  for (const note of notes) lines.push(`- ${note}`);
  for (const target of targets) lines.push(`- Target ${target.holds ? 'met' : 'MISSED'}: ${target.wanted}. Found: ${target.found}.`);
  return lines.join('\n');
}

function table(columns: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const widths = columns.map((column, i) => Math.max(column.length, ...rows.map((row) => (row[i] ?? '').length)));
  const line = (cells: readonly string[]): string =>
    `| ${widths.map((width, i) => (i === 0 ? (cells[i] ?? '').padEnd(width) : (cells[i] ?? '').padStart(width))).join(' | ')} |`;
  return [
    line(columns),
    `| ${widths.map((width, i) => (i === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`)).join(' | ')} |`,
    ...rows.map(line),
  ];
}
