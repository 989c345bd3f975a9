import type { Guarantee, SinkMode } from '../src/index.ts';

/** One column of the table: a guarantee inside Kafka, and what the sink does with it. */
export interface Column {
  readonly guarantee: Guarantee;
  readonly sinkMode: SinkMode;
  readonly title: string;
  /** Whether the column must be exact; the others must show a fault, or the demonstration proved nothing. */
  readonly exact: boolean;
}

export const COLUMNS: readonly Column[] = [
  { guarantee: 'at-most-once', sinkMode: 'at-most-once', title: 'at-most-once', exact: false },
  { guarantee: 'at-least-once', sinkMode: 'at-least-once', title: 'at-least-once, no dedup', exact: false },
  { guarantee: 'exactly-once', sinkMode: 'exactly-once', title: 'exactly-once + sink keys', exact: true },
];

export const PIPELINES = ['flights', 'payments'] as const;
export type PipelineName = (typeof PIPELINES)[number];

/** The names that one column uses in Kafka and Postgres. */
export interface Names {
  readonly prefix: string;
  readonly schema: string;
  readonly applicationId: Readonly<Record<PipelineName, string>>;
}

export function namesOf(run: string, { guarantee }: Column): Names {
  const prefix = `demo-${run}-${guarantee}-`;
  return {
    prefix,
    schema: `demo_${run}_${guarantee.replaceAll('-', '_')}`,
    applicationId: { flights: `${prefix}flights-app`, payments: `${prefix}payments-app` },
  };
}
