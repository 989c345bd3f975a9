import type { Exchange } from './exchange.ts';

export interface JoinGroupRequest {
  readonly groupId: string;
  readonly sessionTimeoutMs: number;
  /** How long the broker waits for each member to rejoin. */
  readonly rebalanceTimeoutMs: number;
  /** Empty for a member that the group does not know yet. */
  readonly memberId: string;
  readonly groupInstanceId: string | null;
  /** In order of preference. */
  readonly protocols: readonly { readonly name: string; readonly metadata: Buffer }[];
}

export interface JoinedMember {
  readonly memberId: string;
  readonly groupInstanceId: string | null;
  readonly metadata: Buffer;
}

export interface JoinGroupAnswer {
  readonly errorCode: number;
  readonly generation: number;
  readonly protocol: string;
  readonly leader: string;
  /** The id to join with, also where the error is MEMBER_ID_REQUIRED. */
  readonly memberId: string;
  /** All members; empty for everyone but the leader. */
  readonly members: readonly JoinedMember[];
}

/** JoinGroup v5 (Kafka 2.3): the first version with `group.instance.id`. Answered when every member has joined. */
export function joinGroupExchange(request: JoinGroupRequest): Exchange<JoinGroupAnswer> {
  return {
    apiKey: 11,
    apiVersion: 5,
    apiName: 'JoinGroup',
    flexible: false,
    encode(writer) {
      writer.string(request.groupId).int32(request.sessionTimeoutMs).int32(request.rebalanceTimeoutMs);
      writer.string(request.memberId).nullableString(request.groupInstanceId).string('consumer');
      writer.array(request.protocols, (w, { name, metadata }) => w.string(name).bytes(metadata));
    },
    decode(reader) {
      reader.int32('throttle_time_ms');
      return {
        errorCode: reader.int16('error_code'),
        generation: reader.int32('generation_id'),
        protocol: reader.string('protocol_name'),
        leader: reader.string('leader'),
        memberId: reader.string('member_id'),
        members: reader.array(
          (r) => ({
            memberId: r.string('member_id'),
            groupInstanceId: r.nullableString('group_instance_id'),
            metadata: r.bytes('metadata'),
          }),
          'members',
        ),
      };
    },
  };
}
