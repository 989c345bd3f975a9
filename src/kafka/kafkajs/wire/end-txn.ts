import type { Exchange } from './exchange.ts';
import type { ProducerIdentity } from './producer-identity.ts';

export interface EndTxnAnswer {
  readonly errorCode: number;
  /** The identity for the next transaction, from version 5 on. */
  readonly next: ProducerIdentity | undefined;
}

/** 1: of transaction version 1. 5: of transaction version 2 (KIP-890), where each end of a transaction raises the epoch. */
export type EndTxnVersion = 1 | 5;

export function endTxnExchange(
  version: EndTxnVersion,
  transactionalId: string,
  identity: ProducerIdentity,
  commit: boolean,
): Exchange<EndTxnAnswer> {
  const flexible = version >= 3;
  return {
    apiKey: 26,
    apiVersion: version,
    apiName: 'EndTxn',
    flexible,
    encode(writer) {
      if (flexible) writer.compactString(transactionalId);
      else writer.string(transactionalId);
      writer.int64(identity.producerId).int16(identity.producerEpoch).boolean(commit);
      if (flexible) writer.tags();
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      const errorCode = reader.int16('error_code');
      if (version < 5) return { errorCode, next: undefined };
      return { errorCode, next: { producerId: reader.int64('producer_id'), producerEpoch: reader.int16('producer_epoch') } };
    },
  };
}
