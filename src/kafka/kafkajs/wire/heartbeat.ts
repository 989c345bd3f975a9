import type { Exchange } from './exchange.ts';
import { writeMember, type Member } from './member.ts';

/** Heartbeat v3 (Kafka 2.3). Gives the error code. */
export function heartbeatExchange(member: Member): Exchange<number> {
  return {
    apiKey: 12,
    apiVersion: 3,
    apiName: 'Heartbeat',
    flexible: false,
    encode(writer) {
      writeMember(writer, member);
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      return reader.int16('error_code');
    },
  };
}
