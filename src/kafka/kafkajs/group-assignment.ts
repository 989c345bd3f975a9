import { FatalError } from '../../model/errors.ts';
import { topicPartitionKey } from '../../model/topic-partition.ts';
import type { Assignor, GroupMember } from '../port.ts';
import { decodeSubscription, encodeAssignment } from './consumer-protocol.ts';
import type { JoinedMember } from './wire/join-group.ts';

/** What the members tell, as the assignor sees it. What one claims to own of an earlier generation than another's is out of date (KIP-792). */
export function groupMembers(joined: readonly JoinedMember[]): GroupMember[] {
  const told = joined.map((member) => ({ member, subscription: decodeSubscription(member.metadata) }));
  const newest = Math.max(...told.map(({ subscription }) => subscription.generation));
  return told.map(({ member, subscription }) => ({
    memberId: member.memberId,
    groupInstanceId: member.groupInstanceId,
    topics: subscription.topics,
    owned: subscription.generation === newest ? subscription.owned : [],
    userData: subscription.userData,
  }));
}

/** Runs the assignor and encodes its answer. Throws FatalError for an answer that would lose or double a partition's records. */
export function assignGroup(
  assignor: Assignor,
  members: readonly GroupMember[],
  partitionCounts: ReadonlyMap<string, number>,
): ReadonlyMap<string, Buffer> {
  const assignment = assignor.assign(members, partitionCounts);
  const owners = new Map<string, string>();
  for (const [memberId, partitions] of assignment) {
    if (!members.some((member) => member.memberId === memberId))
      throw wrong(assignor, `names '${memberId}', who is no member of the group`);
    for (const { topic, partition } of partitions) {
      const key = topicPartitionKey(topic, partition);
      const other = owners.get(key);
      if (other !== undefined) throw wrong(assignor, `gives ${key} to both '${other}' and '${memberId}'`);
      if (!(partition >= 0 && partition < (partitionCounts.get(topic) ?? 0)))
        throw wrong(assignor, `gives out ${key}, which does not exist`);
      owners.set(key, memberId);
    }
  }
  return new Map(members.map(({ memberId }) => [memberId, encodeAssignment(assignment.get(memberId) ?? [], assignor.noteFor?.(memberId))]));
}

function wrong(assignor: Assignor, what: string): FatalError {
  return new FatalError(`the assignor '${assignor.name}' ${what}.`);
}
