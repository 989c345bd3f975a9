import { decodeSubscription, encodeAssignment, type Subscription } from '../../src/kafka/kafkajs/consumer-protocol.ts';
import type { TopicPartition } from '../../src/model/topic-partition.ts';
import { SILENCE, type Script, type ScriptedBroker } from './scripted-broker.ts';

export interface JoinSeen {
  readonly memberId: string;
  readonly groupInstanceId: string | null;
  readonly sessionTimeoutMs: number;
  readonly rebalanceTimeoutMs: number;
  readonly subscription: Subscription;
}

const REBALANCE_IN_PROGRESS = 27;
const MEMBER_ID_REQUIRED = 79;

/** A group of one member, whose coordinator does as the test says. Another member leads it, so the test gives the assignment. */
export class ScriptedGroup {
  generation = 1;
  assignment: readonly TopicPartition[] = [];
  readonly joins: JoinSeen[] = [];
  readonly leaves: string[] = [];
  readonly commits: { readonly generation: number; readonly memberId: string }[] = [];
  /** Taken one per request, before anything else is done; 0 for none. */
  readonly joinErrors: number[] = [];
  readonly syncErrors: number[] = [];
  readonly commitErrors: number[] = [];
  /** What every heartbeat is answered; 'silence' for none at all. */
  heartbeat: number | 'silence' = 0;
  /** What a join waits for, as it does at a broker while other members have not joined. */
  joinHeld: Promise<void> = Promise.resolve();
  #members = 0;

  constructor(broker: ScriptedBroker) {
    broker.script('JoinGroup', this.#join);
    broker.script('SyncGroup', (request, answer) => {
      request.string();
      const code = this.syncErrors.shift() ?? 0;
      // Somebody else has joined meanwhile, so the group goes on to another generation.
      if (code === REBALANCE_IN_PROGRESS) this.generation++;
      answer
        .int32(0)
        .int16(code)
        .bytes(code === 0 ? encodeAssignment(this.assignment) : Buffer.alloc(0));
    });
    broker.script('Heartbeat', (_, answer) => {
      if (this.heartbeat === 'silence') return SILENCE;
      answer.int32(0).int16(this.heartbeat);
      return undefined;
    });
    broker.script('LeaveGroup', (request, answer) => {
      request.string();
      this.leaves.push(
        ...request.array((r) => {
          const memberId = r.string();
          r.nullableString();
          return memberId;
        }),
      );
      answer
        .int32(0)
        .int16(0)
        .array([], () => undefined);
    });
    broker.script('OffsetCommit', (request, answer) => {
      request.string();
      this.commits.push({ generation: request.int32(), memberId: request.string() });
      request.nullableString();
      const topics = request.array((r) => ({
        topic: r.string(),
        partitions: r.array((each) => {
          const partition = each.int32();
          each.int64();
          each.int32();
          each.nullableString();
          return partition;
        }),
      }));
      const code = this.commitErrors.shift() ?? 0;
      answer.int32(0).array(topics, (w, { topic, partitions }) => {
        w.string(topic).array(partitions, (each, partition) => each.int32(partition).int16(code));
      });
    });
  }

  /** From now on the member is asked to join again, which takes it to `generation`. */
  rebalance(generation: number, assignment: readonly TopicPartition[]): void {
    this.generation = generation;
    this.assignment = assignment;
    this.heartbeat = REBALANCE_IN_PROGRESS;
  }

  readonly #join: Script = async (request, answer) => {
    request.string();
    const [sessionTimeoutMs, rebalanceTimeoutMs] = [request.int32(), request.int32()];
    const [memberId, groupInstanceId] = [request.string(), request.nullableString()];
    request.string();
    const [protocol] = request.array((r) => ({ name: r.string(), metadata: r.bytes() }));
    const subscription = decodeSubscription(protocol!.metadata);
    this.joins.push({ memberId, groupInstanceId, sessionTimeoutMs, rebalanceTimeoutMs, subscription });
    let code = this.joinErrors.shift() ?? 0;
    let given = memberId;
    if (code === 0 && memberId === '') {
      given = `member-${++this.#members}`;
      if (groupInstanceId === null) code = MEMBER_ID_REQUIRED;
    }
    if (code === 0) {
      await this.joinHeld;
      this.heartbeat = 0;
    }
    answer
      .int32(0)
      .int16(code)
      .int32(code === 0 ? this.generation : -1);
    answer
      .string(protocol!.name)
      .string('another member')
      .string(given)
      .array([], () => undefined);
  };
}
