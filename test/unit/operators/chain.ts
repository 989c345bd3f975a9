import type { Headers } from '../../../src/model/headers.ts';
import type { Payload, RecordContext } from '../../../src/model/record.ts';
import type { Collector, Operator, Step } from '../../../src/operators/step.ts';

export type Passed = readonly [key: unknown, value: unknown, context: RecordContext];

export interface Sent {
  readonly topic: string;
  readonly partition: Parameters<Collector['send']>[1];
  readonly key: Payload;
  readonly value: Payload;
  readonly timestamp: number;
  readonly headers: Headers;
}

/** A collector that keeps what it is given. */
export class SentRecords implements Collector {
  readonly sent: Sent[] = [];
  readonly #partitionCount: number | undefined;

  constructor(partitionCount?: number) {
    this.#partitionCount = partitionCount;
  }

  partitionCount(): number | undefined {
    return this.#partitionCount;
  }

  send(...[topic, partition, key, value, timestamp, headers]: Parameters<Collector['send']>): void {
    this.sent.push({ topic, partition, key, value, timestamp, headers });
  }
}

/** The step of one operator, and what it passes on. */
export function alone(operator: Operator, collector: Collector = new SentRecords()): { step: Step; passed: Passed[] } {
  const passed: Passed[] = [];
  const keep: Step = (key, value, context) => void passed.push([key, value, context]);
  return { step: operator(keep, new Map(), { collector }), passed };
}

export function contextOf(changes: Partial<RecordContext> = {}): RecordContext {
  return { topic: 'in', partition: 0, offset: 0n, timestamp: 1000, headers: [], ...changes };
}
