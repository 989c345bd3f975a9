import type { Exchange } from './exchange.ts';

export type CoordinatorType = 'group' | 'transaction';

export interface CoordinatorAnswer {
  readonly errorCode: number;
  readonly errorMessage: string | null;
  readonly nodeId: number;
  readonly host: string;
  readonly port: number;
}

/** FindCoordinator v2. */
export function findCoordinatorExchange(type: CoordinatorType, key: string): Exchange<CoordinatorAnswer> {
  return {
    apiKey: 10,
    apiVersion: 2,
    apiName: 'FindCoordinator',
    flexible: false,
    encode(writer) {
      writer.string(key).int8(type === 'group' ? 0 : 1);
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      return {
        errorCode: reader.int16('error_code'),
        errorMessage: reader.nullableString('error_message'),
        nodeId: reader.int32('node_id'),
        host: reader.string('host'),
        port: reader.int32('port'),
      };
    },
  };
}
