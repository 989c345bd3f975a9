import type { WireWriter } from './writer.ts';

/** How a member names itself in the requests of its generation. */
export interface Member {
  readonly groupId: string;
  readonly generation: number;
  readonly memberId: string;
  readonly groupInstanceId: string | null;
}

/** The four fields in the order in which SyncGroup, Heartbeat and OffsetCommit begin. */
export function writeMember(writer: WireWriter, { groupId, generation, memberId, groupInstanceId }: Member): WireWriter {
  return writer.string(groupId).int32(generation).string(memberId).nullableString(groupInstanceId);
}
