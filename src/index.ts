export { type JsonOptions, json, type StandardSchema } from './serde/json.ts';
export { bytes } from './serde/bytes.ts';
export { nullable } from './serde/nullable.ts';
export { float64, int32, int64, number } from './serde/number.ts';
export type { Serde, SerdeContext, Serialiser } from './serde/serde.ts';
export { string } from './serde/string.ts';

export type { BranchedKStream, KStream } from './topology/kstream.ts';
export type { Mapper, Predicate, Raw, SerdeState, StepOptions, StreamOptions, ToOptions } from './topology/stream-options.ts';
export { describe, type DescribeOptions } from './topology/describe.ts';
export type { NodeDescription, TopologyDescription } from './topology/description.ts';
export { StreamsBuilder, type TopicSelection } from './topology/streams-builder.ts';
export type { SinkStage, SubTopology, Topology } from './topology/topology.ts';
export type { OutputHeaders } from './operators/to.ts';

export {
  Application,
  type ApplicationOptions,
  type ApplicationState,
  type KafkaConfig,
  type StateListener,
} from './runtime/application.ts';
export type { OffsetOutOfRange } from './runtime/offset-range.ts';
export type { RuntimeOptions } from './runtime/options.ts';

export { type ColumnSource, insert, type InsertOptions } from './sink/postgres/insert-effect.ts';
export type { OnConflict } from './sink/postgres/insert-statement.ts';
export type { DuplicateRecord, OnDuplicates } from './sink/postgres/batch-transaction.ts';
export type { SinkTuning } from './runtime/sink-tuning.ts';
export type { EffectFunction, SinkTransaction } from './sink/postgres/function-effect.ts';
export type { PostgresSinkOptions } from './sink/postgres/options.ts';
export { postgresSink } from './sink/postgres/postgres-sink.ts';
export type { Sink, SinkBatch, SinkContext, SinkMode, SinkOutcome, SinkRecord, SinkWriter } from './sink/port.ts';

export * from './model/errors.ts';
export type { Guarantee } from './model/guarantee.ts';
export { type Header, type Headers, lastHeader, textHeader } from './model/headers.ts';
export { coordinatesKey, IDEMPOTENCY_KEY_HEADER, idempotencyKeyHeader } from './model/idempotency-key.ts';
export type { ConsumedRecord, Payload, RecordContext } from './model/record.ts';
export type { PartitionOffset, TopicPartition } from './model/topic-partition.ts';

export type {
  Admin,
  CommittedOffset,
  FetchedBatch,
  IdempotentProducer,
  Isolation,
  KafkaClient,
  LogBounds,
  LogReader,
  TopicSpec,
} from './kafka/port.ts';
export { kafkaClient } from './kafka/kafkajs/client.ts';
export type { KafkaClientConfig } from './kafka/kafkajs/config.ts';
export { murmur2, partitionForKey } from './model/partitioner.ts';
