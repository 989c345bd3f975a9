import type { KafkaClient } from '../port.ts';
import { KafkaAdmin } from './admin.ts';
import { connectionConfig, type KafkaClientConfig } from './config.ts';
import { KafkaGroupConsumer } from './group-consumer.ts';
import { KafkaIdempotentProducer } from './idempotent-producer.ts';
import { KafkaLogReader } from './log-reader.ts';
import { KafkaTransactionalProducer } from './transactional-producer.ts';

/**
 * A Kafka cluster, reached through kafkajs' connections. Nothing connects before it is used. Throws ConfigurationError that names the option
 * at fault.
 */
export function kafkaClient(config: KafkaClientConfig): KafkaClient {
  const connection = connectionConfig(config);
  return {
    groupConsumer: (options) => new KafkaGroupConsumer(connection, options),
    transactionalProducer: (options) => new KafkaTransactionalProducer(connection, options),
    idempotentProducer: (options = {}) => new KafkaIdempotentProducer(connection, options),
    logReader: (options = {}) => new KafkaLogReader(connection, options),
    admin: () => new KafkaAdmin(connection),
  };
}
