import type { Exchange } from './exchange.ts';
import { writeMember, type Member } from './member.ts';

export interface SyncGroupAnswer {
  readonly errorCode: number;
  /** In the format of `consumer-protocol.ts`. */
  readonly assignment: Buffer;
}

/** SyncGroup v3 (Kafka 2.3). Only the leader of the group gives assignments, by member id; answered when it has. */
export function syncGroupExchange(member: Member, assignments: ReadonlyMap<string, Buffer>): Exchange<SyncGroupAnswer> {
  return {
    apiKey: 14,
    apiVersion: 3,
    apiName: 'SyncGroup',
    flexible: false,
    encode(writer) {
      writeMember(writer, member).array([...assignments], (w, [memberId, assignment]) => w.string(memberId).bytes(assignment));
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      return { errorCode: reader.int16('error_code'), assignment: reader.bytes('assignment') };
    },
  };
}
