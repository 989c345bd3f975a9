import { FatalError } from '../../model/errors.ts';
import type { IdempotentProducer, ProducerOptions } from '../port.ts';
import { BufferedProducer } from './buffered-producer.ts';
import type { ConnectionConfig } from './config.ts';
import { retry } from './retry.ts';
import { ErrorCode, toKafkaError } from './wire/error-code.ts';
import { initProducerIdExchange } from './wire/init-producer-id.ts';
import { NEWEST_PRODUCE_VERSION, OLDEST_PRODUCE_VERSION } from './wire/produce.ts';
import type { ProducerIdentity } from './wire/producer-identity.ts';

/** Writes each record once per producer id, in order; see the port. */
export class KafkaIdempotentProducer extends BufferedProducer implements IdempotentProducer {
  #initialised = false;

  constructor(config: ConnectionConfig, options: ProducerOptions = {}) {
    super(config, options);
  }

  async init(): Promise<void> {
    this.#initialised = false;
    this.sender.reset();
    const identity = await this.#newIdentity();
    this.sender.start({
      identity,
      transactionalId: null,
      oldestProduceVersion: OLDEST_PRODUCE_VERSION,
      newestProduceVersion: NEWEST_PRODUCE_VERSION,
    });
    this.#initialised = true;
  }

  protected override assertOpen(call: string): void {
    if (!this.#initialised) throw new FatalError(`${call} before init: the producer has no producer id yet.`);
  }

  /** A new id each time: nothing ties it to what an earlier one may still have under way. */
  async #newIdentity(): Promise<ProducerIdentity> {
    return await retry(this.options.requestTimeoutMs, async (remainingMs) => {
      if (this.connection.closed) throw new FatalError('The producer is closed.');
      const answer = await this.connection.sendToAny(initProducerIdExchange(null, 0), remainingMs);
      if (answer.errorCode !== ErrorCode.NONE) throw toKafkaError(answer.errorCode, { api: 'InitProducerId' });
      return { producerId: answer.producerId, producerEpoch: answer.producerEpoch };
    });
  }
}
