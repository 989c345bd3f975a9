import { NO_HEADERS, type Headers } from '../../src/model/headers.ts';
import type { SinkBatch, SinkContext, SinkRecord } from '../../src/sink/port.ts';

export interface SinkRecordSpec<V> {
  readonly value: V;
  readonly key?: string | null;
  /** Default: the coordinates. */
  readonly idempotencyKey?: string;
  readonly headers?: Headers;
  readonly source?: SinkRecord<unknown, unknown>['source'];
}

/** A batch of one record per offset from `from` on, as a sink worker would make it. */
export function sinkBatch<V>(
  values: readonly SinkRecordSpec<V>[],
  { topic = 'orders', partition = 0, from = 0n }: { topic?: string; partition?: number; from?: bigint } = {},
): SinkBatch<string | null, V> {
  const records = values.map(({ value, key = null, idempotencyKey, headers = NO_HEADERS, source }, i): SinkRecord<string | null, V> => {
    const offset = from + BigInt(i);
    return {
      key,
      value,
      context: { topic, partition, offset, timestamp: 1_700_000_000_000 + i, headers },
      idempotencyKey: idempotencyKey ?? `${topic}/${partition}/${offset}`,
      ...(source === undefined ? {} : { source }),
    };
  });
  return { topic, partition, from, nextOffset: from + BigInt(values.length), records };
}

/** What was logged, for tests which assert that something is visible. */
export interface LoggedLine {
  readonly level: 'info' | 'warn' | 'error';
  readonly message: string;
  readonly fields: object;
}

export function recordingLog(): { readonly lines: LoggedLine[]; readonly log: SinkContext['log'] } {
  const lines: LoggedLine[] = [];
  const at = (level: LoggedLine['level']) => (fields: object, message: string) => void lines.push({ level, message, fields });
  return { lines, log: { info: at('info'), warn: at('warn'), error: at('error') } };
}

export function sinkContext(overrides: Partial<SinkContext> = {}): SinkContext {
  return { applicationId: 'shop', stage: 'orders-to-postgres', log: recordingLog().log, ...overrides };
}
