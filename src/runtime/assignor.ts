import type { Assignor, GroupMember } from '../kafka/port.ts';
import { type TopicPartition, topicPartitionKey } from '../model/topic-partition.ts';
import { FatalError } from '../model/errors.ts';
import { taskId, type TaskPlan } from './task-plan.ts';

const VERSION = 1;
const NO_NOTE = Buffer.alloc(0);

/** All source partitions of one sub-topology and partition number: they always have the same owner. */
interface AssignableTask {
  readonly id: string;
  readonly partitions: TopicPartition[];
}

/**
 * Assigns tasks, not partitions, so that the topics of a sub-topology that are to be joined or merged meet in one member. Balanced to within one
 * task; a member keeps the tasks that it had, as far as the balance allows.
 */
export class TaskAssignor implements Assignor {
  readonly name = 'tidemark';
  readonly #plan: TaskPlan;
  readonly #fingerprint: string;
  /** Of the assignment that was made last. */
  readonly #refusals = new Map<string, Refusal>();

  constructor(plan: TaskPlan, fingerprint: string) {
    this.#plan = plan;
    this.#fingerprint = fingerprint;
  }

  userData(): Buffer {
    return Buffer.from(JSON.stringify({ version: VERSION, fingerprint: this.#fingerprint }), 'utf8');
  }

  noteFor(memberId: string): Buffer {
    const refusal = this.#refusals.get(memberId);
    return refusal === undefined ? NO_NOTE : Buffer.from(JSON.stringify(refusal), 'utf8');
  }

  /** Throws FatalError where the leader has refused this member. */
  onNote(note: Buffer): void {
    if (note.length === 0) return;
    const { running, refused } = JSON.parse(note.toString('utf8')) as Refusal;
    throw new FatalError(
      `the group runs the topology with fingerprint '${running}', and this instance has '${refused}' (its own is '${this.#fingerprint}'): ` +
        'it was given no tasks. All instances of an application run the same topology: stop the old ones before you start new ones, or give the ' +
        'new topology an applicationId of its own',
    );
  }

  assign(members: readonly GroupMember[], partitionCounts: ReadonlyMap<string, number>): ReadonlyMap<string, readonly TopicPartition[]> {
    const tasks = this.#tasks(partitionCounts);
    const running = runningFingerprint(members);
    this.#refusals.clear();
    for (const { memberId, userData } of members) {
      const refused = fingerprintOf(userData);
      if (refused !== running) this.#refusals.set(memberId, { running, refused });
    }
    const sorted = members.filter((member) => !this.#refusals.has(member.memberId)).toSorted((a, b) => (a.memberId < b.memberId ? -1 : 1));
    const loads = new Map<string, AssignableTask[]>(sorted.map((member) => [member.memberId, []]));
    const unassigned = keepOwned(tasks, sorted, loads);
    for (const task of unassigned) leastLoaded(loads).push(task);
    return new Map([...loads].map(([memberId, owned]) => [memberId, owned.flatMap((task) => task.partitions)]));
  }

  #tasks(partitionCounts: ReadonlyMap<string, number>): AssignableTask[] {
    const tasks = new Map<string, AssignableTask>();
    const topics = [...partitionCounts.keys()].toSorted();
    for (const topic of topics) {
      const reader = this.#plan.reader(topic);
      if (reader === undefined) continue;
      const count = partitionCounts.get(topic) ?? 0;
      for (let partition = 0; partition < count; partition++) {
        const id = taskId(reader.subTopology.id, partition);
        const task = tasks.get(id);
        if (task === undefined) tasks.set(id, { id, partitions: [{ topic, partition }] });
        else task.partitions.push({ topic, partition });
      }
    }
    return [...tasks.values()];
  }
}

/** A member that runs another topology than the group would be given tasks that it does not have. */
interface Refusal {
  readonly running: string;
  readonly refused: string;
}

function fingerprintOf(userData: Buffer): string {
  try {
    const told = JSON.parse(userData.toString('utf8')) as { version?: unknown; fingerprint?: unknown };
    if (told.version === VERSION && typeof told.fingerprint === 'string') return told.fingerprint;
    return `unknown, of version ${String(told.version)}`;
  } catch {
    return 'unknown';
  }
}

/** Of those who own something, so that a new member cannot put out those who work; then of the most members; then the lowest. */
function runningFingerprint(members: readonly GroupMember[]): string {
  const votes = new Map<string, { owned: number; members: number }>();
  for (const { userData, owned } of members) {
    const fingerprint = fingerprintOf(userData);
    const vote = votes.get(fingerprint) ?? { owned: 0, members: 0 };
    votes.set(fingerprint, { owned: vote.owned + owned.length, members: vote.members + 1 });
  }
  const ranked = [...votes].toSorted(([a, x], [b, y]) => y.owned - x.owned || y.members - x.members || (a < b ? -1 : 1));
  return ranked[0]?.[0] ?? '';
}

/** Each member keeps what it had, up to its share. Returns what is left over. */
function keepOwned(
  tasks: readonly AssignableTask[],
  members: readonly GroupMember[],
  loads: ReadonlyMap<string, AssignableTask[]>,
): AssignableTask[] {
  const ownerOf = new Map<string, string>();
  for (const member of members) {
    for (const { topic, partition } of member.owned) {
      const key = topicPartitionKey(topic, partition);
      if (!ownerOf.has(key)) ownerOf.set(key, member.memberId);
    }
  }
  const share = Math.floor(tasks.length / members.length);
  // So many members may have one more than the others.
  let extras = tasks.length % members.length;
  const left: AssignableTask[] = [];
  for (const task of tasks) {
    const owners = task.partitions.map(({ topic, partition }) => ownerOf.get(topicPartitionKey(topic, partition)));
    const owned = loads.get(owners.find((owner) => owner !== undefined) ?? '');
    if (owned === undefined || owned.length > share || (owned.length === share && extras === 0)) {
      left.push(task);
      continue;
    }
    if (owned.length === share) extras--;
    owned.push(task);
  }
  return left;
}

function leastLoaded(loads: ReadonlyMap<string, AssignableTask[]>): AssignableTask[] {
  let least: AssignableTask[] | undefined;
  for (const tasks of loads.values()) if (least === undefined || tasks.length < least.length) least = tasks;
  return least ?? [];
}
