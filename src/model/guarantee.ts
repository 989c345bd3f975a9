/**
 * What happens to a record when the process dies.
 * - `at-most-once`: offsets are committed before the record is processed. Nothing is done twice; what was in flight is lost.
 * - `at-least-once`: offsets are committed after the outputs are acknowledged. Nothing is lost; what was in flight is done again.
 * - `exactly-once`: outputs and offsets are one Kafka transaction. Holds inside Kafka, for `read_committed` readers.
 */
export type Guarantee = 'at-most-once' | 'at-least-once' | 'exactly-once';
