import { ConfigurationError } from '../model/errors.ts';
import type { Guarantee } from '../model/guarantee.ts';
import { mermaid } from './describe-mermaid.ts';
import { text } from './describe-text.ts';
import { describeStructure } from './description.ts';
import type { Topology } from './topology.ts';

export const DESCRIBE_FORMATS = ['text', 'mermaid', 'json'] as const;

export interface DescribeOptions {
  /** Of the application that is to run the topology. Default: `exactly-once`. */
  readonly guarantee?: Guarantee;
  /**
   * - `text` (default): as Kafka Streams prints a topology, with the guarantee on each edge that crosses a boundary.
   * - `mermaid`: a flowchart, for Markdown that is shown by GitHub and others.
   * - `json`: a `TopologyDescription`.
   */
  readonly format?: (typeof DESCRIBE_FORMATS)[number];
}

/**
 * What a topology consists of, and where exactly-once ends: each edge that crosses a boundary carries the guarantee that it really has.
 *
 * ```ts run
 * flights.filter((flight) => flight.delay > 15).to('late-flights');
 * console.log(describe(builder.build(), { guarantee: 'at-least-once' }));
 * ```
 */
export function describe(topology: Topology, options: DescribeOptions = {}): string {
  const description = describeStructure(topology, options.guarantee ?? 'exactly-once');
  const format = options.format ?? 'text';
  switch (format) {
    case 'text':
      return text(description);
    case 'mermaid':
      return mermaid(description);
    case 'json':
      return JSON.stringify(description, null, 2);
    default:
      throw new ConfigurationError(`describe knows the formats ${DESCRIBE_FORMATS.join(', ')}, but not ${String(format satisfies never)}`);
  }
}
