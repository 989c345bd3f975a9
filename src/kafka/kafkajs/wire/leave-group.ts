import type { Exchange } from './exchange.ts';

/** LeaveGroup v3 (Kafka 2.4) of one dynamic member. A static one stays in its group by not sending it. Gives the error code. */
export function leaveGroupExchange(groupId: string, memberId: string): Exchange<number> {
  return {
    apiKey: 13,
    apiVersion: 3,
    apiName: 'LeaveGroup',
    flexible: false,
    encode(writer) {
      writer.string(groupId).array([memberId], (w, id) => w.string(id).nullableString(null));
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      const errorCode = reader.int16('error_code');
      const members = reader.array((r) => {
        r.string('member_id');
        r.nullableString('group_instance_id');
        return r.int16('member error_code');
      }, 'members');
      return errorCode !== 0 ? errorCode : (members[0] ?? 0);
    },
  };
}
