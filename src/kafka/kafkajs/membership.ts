import { setTimeout as sleep } from 'node:timers/promises';
import { FatalError, RetriableError, StaleGenerationError, TidemarkError } from '../../model/errors.ts';
import { movingBackOff } from './back-off.ts';
import type { ConnectionConfig } from './config.ts';
import { ClusterConnection } from './connection.ts';
import { ErrorCode, errorName, type ErrorPlace, toKafkaError } from './wire/error-code.ts';
import { heartbeatExchange } from './wire/heartbeat.ts';
import { joinGroupExchange, type JoinedMember, type JoinGroupAnswer } from './wire/join-group.ts';
import { leaveGroupExchange } from './wire/leave-group.ts';
import type { Member } from './wire/member.ts';
import { syncGroupExchange } from './wire/sync-group.ts';

export interface MembershipOptions {
  readonly groupId: string;
  readonly groupInstanceId: string | null;
  /** The assignor's name. */
  readonly protocol: string;
  readonly sessionTimeoutMs: number;
  readonly heartbeatIntervalMs: number;
  readonly rebalanceTimeoutMs: number;
  readonly requestTimeoutMs: number;
  /** What this member tells the leader; asked for at each attempt to join. */
  readonly subscription: () => Buffer;
  /** Assigns for the whole group, when this member leads it. */
  readonly assign: (members: readonly JoinedMember[]) => Promise<ReadonlyMap<string, Buffer>>;
  /** Whether whoever polls has not come back for too long. */
  readonly isStuck: () => boolean;
  /** Called when `rebalancing` or `lost` has changed. */
  readonly onNews: () => void;
}

/** One generation of the group with this member in it. */
export interface Joined {
  readonly member: Member;
  readonly leads: boolean;
  readonly assignment: Buffer;
}

/**
 * This member's life in its group: join, sync, heartbeats on a timer of their own, leave. Uses a connection of its own for joining, because a
 * JoinGroup is answered only when the other members have joined too.
 */
export class Membership {
  readonly #options: MembershipOptions;
  readonly #control: ClusterConnection;
  readonly #joining: ClusterConnection;
  readonly #log: ConnectionConfig['log'];
  readonly #closing = new AbortController();
  #memberId = '';
  /** Heartbeats are sent for it; undefined outside of a generation. */
  #member: Member | undefined;
  /** SyncGroup is on its way, and its answer will tell what a heartbeat could. */
  #syncing = false;
  /** When the last request was sent that the broker answered as to a live member (monotonic milliseconds). */
  #contactAt = 0;
  #timer: NodeJS.Timeout | undefined;
  #rebalancing = false;
  #lost: string | undefined;
  #fatal: TidemarkError | undefined;

  /** `control`: for the short requests of the group. Not closed here. */
  constructor(config: ConnectionConfig, control: ClusterConnection, options: MembershipOptions) {
    this.#options = options;
    this.#control = control;
    this.#joining = new ClusterConnection(config);
    this.#log = config.log;
  }

  /** The group is waiting for this member to join again. */
  get rebalancing(): boolean {
    return this.#rebalancing;
  }

  /** In a generation, or between joining and the leader's assignment. */
  get active(): boolean {
    return this.#member !== undefined;
  }

  /** Why this member is no longer what it was in its last generation. Stays until `acknowledgeLoss`. */
  get lost(): string | undefined {
    this.#checkSession();
    return this.#lost;
  }

  /** What no new attempt to join would mend. */
  get fatal(): TidemarkError | undefined {
    return this.#fatal;
  }

  acknowledgeLoss(): void {
    this.#lost = undefined;
  }

  /** Joins anew as soon as the consumer is ready to. */
  requestRebalance(): void {
    if (this.#member === undefined) return;
    this.#rebalancing = true;
    this.#options.onNews();
  }

  /** The broker has told elsewhere that the generation is over. */
  lose(reason: string): void {
    if (this.#member === undefined) return;
    this.#stopHeartbeats();
    this.#lost = reason;
    this.#log?.('warn', 'membership of a consumer group lost', { group: this.#options.groupId, memberId: this.#memberId, reason });
    this.#options.onNews();
  }

  /** Joins, again and again, until it is a member, which may take as long as the slowest other one. Throws FatalError, and after `close`. */
  async join(): Promise<Joined> {
    const backOff = movingBackOff();
    for (;;) {
      if (this.#closing.signal.aborted) throw new FatalError('the consumer is closed.');
      this.#stopHeartbeats();
      try {
        const joined = await this.#attempt();
        if (joined !== undefined) return joined;
        if (this.#memberId === '') await this.#pause(backOff.next());
      } catch (error) {
        if (!(error instanceof RetriableError || error instanceof StaleGenerationError)) throw error;
        this.#log?.('debug', 'joining a consumer group will be tried again', { group: this.#options.groupId, error: error.message });
        this.#joining.forgetCoordinator('group', this.#options.groupId);
        await this.#pause(backOff.next());
      }
    }
  }

  /** Tells the group that this member is gone; a static one only stops its heartbeats (KIP-345). Never throws. */
  async leave(timeoutMs: number): Promise<void> {
    this.#stopHeartbeats();
    const { groupId, groupInstanceId } = this.#options;
    const memberId = this.#memberId;
    if (groupInstanceId !== null || memberId === '') return;
    this.#memberId = '';
    const deadline = performance.now() + timeoutMs;
    try {
      const coordinator = await this.#control.coordinator('group', groupId, timeoutMs);
      const remainingMs = Math.max(1, deadline - performance.now());
      const code = await this.#control.send(coordinator, leaveGroupExchange(groupId, memberId), { timeoutMs: remainingMs });
      if (code !== ErrorCode.NONE) throw toKafkaError(code, { api: 'LeaveGroup', group: groupId });
    } catch (error) {
      this.#log?.('warn', 'a consumer group was not told that a member left; it will notice after the session timeout', {
        group: groupId,
        memberId,
        error: String(error),
      });
    }
  }

  /** Ends an attempt to join too. Does not leave the group. */
  close(): void {
    this.#closing.abort();
    this.#stopHeartbeats();
    this.#joining.close();
  }

  /** Undefined when the next attempt should follow. */
  async #attempt(): Promise<Joined | undefined> {
    const { groupId, groupInstanceId, protocol, sessionTimeoutMs, rebalanceTimeoutMs, requestTimeoutMs } = this.#options;
    const timeoutMs = rebalanceTimeoutMs + requestTimeoutMs;
    const coordinator = await this.#joining.coordinator('group', groupId, requestTimeoutMs);
    const request = joinGroupExchange({
      groupId,
      sessionTimeoutMs,
      rebalanceTimeoutMs,
      memberId: this.#memberId,
      groupInstanceId,
      protocols: [{ name: protocol, metadata: this.#options.subscription() }],
    });
    const answer = await this.#joining.send(coordinator, request, { timeoutMs });
    if (answer.errorCode !== ErrorCode.NONE) return this.#refusedJoin(answer);
    this.#memberId = answer.memberId;
    const member: Member = { groupId, generation: answer.generation, memberId: answer.memberId, groupInstanceId };
    const leads = answer.leader === answer.memberId;
    this.#rebalancing = false;
    this.#syncing = true;
    this.#startHeartbeats(member);
    try {
      const assignments = leads ? await this.#options.assign(answer.members) : new Map<string, Buffer>();
      const sentAt = performance.now();
      const sync = await this.#joining.send(coordinator, syncGroupExchange(member, assignments), { timeoutMs });
      if (sync.errorCode !== ErrorCode.NONE) {
        this.#refusedSync(sync.errorCode);
        return undefined;
      }
      // Not the time of the answer: this process may have been stopped before it could read it.
      this.#contactAt = Math.max(this.#contactAt, sentAt);
      this.#log?.('info', 'joined a consumer group', { group: groupId, memberId: member.memberId, generation: member.generation, leads });
      return { member, leads, assignment: sync.assignment };
    } finally {
      this.#syncing = false;
    }
  }

  #refusedJoin({ errorCode, memberId }: JoinGroupAnswer): undefined {
    switch (errorCode) {
      case ErrorCode.MEMBER_ID_REQUIRED:
        this.#memberId = memberId;
        return undefined;
      case ErrorCode.UNKNOWN_MEMBER_ID:
        this.#forgotten();
        return undefined;
      default:
        throw toKafkaError(errorCode, this.#place('JoinGroup'));
    }
  }

  #refusedSync(code: number): void {
    if (code !== ErrorCode.UNKNOWN_MEMBER_ID) throw toKafkaError(code, this.#place('SyncGroup'));
    this.#forgotten();
  }

  #forgotten(): void {
    this.#memberId = '';
    this.#lost = 'the group does not know this member any more';
    this.#options.onNews();
  }

  async #pause(ms: number): Promise<void> {
    await sleep(ms, undefined, { signal: this.#closing.signal }).catch(() => undefined);
  }

  #startHeartbeats(member: Member): void {
    this.#member = member;
    this.#contactAt = performance.now();
    this.#planHeartbeat(member, this.#options.heartbeatIntervalMs);
  }

  #stopHeartbeats(): void {
    this.#member = undefined;
    clearTimeout(this.#timer);
  }

  #planHeartbeat(member: Member, delayMs: number): void {
    if (this.#member !== member) return;
    this.#timer = setTimeout(() => {
      this.#heartbeat(member)
        .then((nextMs) => this.#planHeartbeat(member, nextMs))
        .catch((error: unknown) => this.#end(error));
    }, delayMs);
  }

  /** Sends one heartbeat and gives the time until the next one. The next is planned only when this one is over, so they never pile up. */
  async #heartbeat(member: Member): Promise<number> {
    const { groupId, heartbeatIntervalMs, sessionTimeoutMs, rebalanceTimeoutMs, requestTimeoutMs, isStuck } = this.#options;
    this.#checkSession();
    if (this.#member !== member) return 0;
    if (isStuck()) {
      this.lose(`the consumer has not been polled for longer than maxPollIntervalMs (${rebalanceTimeoutMs})`);
      await this.leave(requestTimeoutMs);
      return 0;
    }
    const sentAt = performance.now();
    const timeoutMs = Math.min(requestTimeoutMs, Math.max(sessionTimeoutMs / 3, heartbeatIntervalMs));
    try {
      const coordinator = await this.#control.coordinator('group', groupId, timeoutMs);
      const code = await this.#control.send(coordinator, heartbeatExchange(member), { timeoutMs });
      if (this.#member === member) this.#heard(code, sentAt);
    } catch (error) {
      if (!(error instanceof RetriableError)) throw error;
      this.#log?.('debug', 'a heartbeat failed', { group: groupId, error: error.message });
      this.#control.forgetCoordinator('group', groupId);
      return Math.min(heartbeatIntervalMs, 200);
    }
    return Math.max(0, sentAt + heartbeatIntervalMs - performance.now());
  }

  #heard(code: number, sentAt: number): void {
    switch (code) {
      case ErrorCode.NONE:
        this.#contactAt = Math.max(this.#contactAt, sentAt);
        return;
      case ErrorCode.REBALANCE_IN_PROGRESS:
        this.#contactAt = Math.max(this.#contactAt, sentAt);
        if (this.#rebalancing) return;
        this.#rebalancing = true;
        this.#options.onNews();
        return;
      case ErrorCode.UNKNOWN_MEMBER_ID:
      case ErrorCode.ILLEGAL_GENERATION:
        if (this.#syncing) return;
        if (code === ErrorCode.UNKNOWN_MEMBER_ID) this.#memberId = '';
        this.lose(`the group has gone on without this member (${errorName(code)})`);
        return;
      default:
        throw toKafkaError(code, this.#place('Heartbeat'));
    }
  }

  /**
   * The group expires a member that it has not heard of for the session timeout. A process that was stopped cannot hear of it, so its own clock
   * tells it first. The broker's session began after the request was sent, so this one never ends later.
   */
  #checkSession(): void {
    if (this.#member === undefined || this.#syncing) return;
    const silentMs = performance.now() - this.#contactAt;
    if (silentMs < this.#options.sessionTimeoutMs) return;
    this.lose(`no heartbeat was answered for ${Math.round(silentMs)} ms, which is longer than the session timeout`);
  }

  #place(api: string): ErrorPlace {
    const { groupId, groupInstanceId } = this.#options;
    return { api, group: groupId, groupInstanceId };
  }

  #end(error: unknown): void {
    this.#fatal ??= error instanceof TidemarkError ? error : new FatalError(`heartbeats failed: ${String(error)}`, { cause: error });
    this.lose(this.#fatal.message);
    this.#options.onNews();
  }
}
