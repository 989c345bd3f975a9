import type { Exchange } from './exchange.ts';
import type { ProducerIdentity } from './producer-identity.ts';

export interface InitProducerIdAnswer extends ProducerIdentity {
  readonly errorCode: number;
}

/**
 * InitProducerId v3. It is always asked as a producer that has no id yet (-1): for a transactional id the broker then ends whatever is open
 * under it and raises the epoch, for none it hands out a new id.
 */
export function initProducerIdExchange(transactionalId: string | null, transactionTimeoutMs: number): Exchange<InitProducerIdAnswer> {
  return {
    apiKey: 22,
    apiVersion: 3,
    apiName: 'InitProducerId',
    flexible: true,
    encode(writer) {
      writer.compactNullableString(transactionalId).int32(transactionTimeoutMs).int64(-1n).int16(-1).tags();
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      return {
        errorCode: reader.int16('error_code'),
        producerId: reader.int64('producer_id'),
        producerEpoch: reader.int16('producer_epoch'),
      };
    },
  };
}
