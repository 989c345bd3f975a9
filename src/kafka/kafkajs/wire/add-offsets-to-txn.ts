import type { Exchange } from './exchange.ts';
import type { ProducerIdentity } from './producer-identity.ts';

export interface AddOffsetsAnswer {
  readonly errorCode: number;
}

/** AddOffsetsToTxn v1: adds the partition of the group's offsets to the transaction. */
export function addOffsetsToTxnExchange(transactionalId: string, identity: ProducerIdentity, groupId: string): Exchange<AddOffsetsAnswer> {
  return {
    apiKey: 25,
    apiVersion: 1,
    apiName: 'AddOffsetsToTxn',
    flexible: false,
    encode(writer) {
      writer.string(transactionalId).int64(identity.producerId).int16(identity.producerEpoch).string(groupId);
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      return { errorCode: reader.int16('error_code') };
    },
  };
}
