import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { connectionConfig } from '../../../../src/kafka/kafkajs/config.ts';
import { KafkaGroupConsumer } from '../../../../src/kafka/kafkajs/group-consumer.ts';
import type { Assignor, ConsumerEvent, GroupConsumer, GroupConsumerOptions } from '../../../../src/kafka/port.ts';
import { ConfigurationError, FatalError, StaleGenerationError } from '../../../../src/model/errors.ts';
import { ScriptedBroker } from '../../../support/scripted-broker.ts';
import { ScriptedGroup } from '../../../support/scripted-group.ts';
import { ScriptedLog } from '../../../support/scripted-log.ts';

const NOT_COORDINATOR = 16;
const ILLEGAL_GENERATION = 22;
const INCONSISTENT_GROUP_PROTOCOL = 23;
const UNKNOWN_MEMBER_ID = 25;
const REBALANCE_IN_PROGRESS = 27;
const FENCED_INSTANCE_ID = 82;
const COORDINATOR_LOAD_IN_PROGRESS = 14;

const assignor: Assignor = { name: 'test', userData: () => Buffer.from('data'), assign: () => new Map() };
const p0 = { topic: 't', partition: 0 };
const p1 = { topic: 't', partition: 1 };

describe('KafkaGroupConsumer', () => {
  let broker: ScriptedBroker;
  let group: ScriptedGroup;
  let log: ScriptedLog;
  let consumers: GroupConsumer[];

  beforeEach(async () => {
    broker = await ScriptedBroker.start();
    broker.topics.set('t', 2);
    group = new ScriptedGroup(broker);
    group.assignment = [p0, p1];
    log = new ScriptedLog(broker);
    consumers = [];
  });
  afterEach(async () => {
    for (const consumer of consumers) await consumer.close(200);
    await broker.close();
  });

  function consumerOf(options: Partial<GroupConsumerOptions> = {}): GroupConsumer {
    const consumer = new KafkaGroupConsumer(connectionConfig({ brokers: [broker.address] }), {
      groupId: 'g',
      subscription: { topics: ['t'] },
      assignor,
      heartbeatIntervalMs: 20,
      fetch: { maxWaitMs: 100 },
      ...options,
    });
    consumers.push(consumer);
    return consumer;
  }

  async function next(consumer: GroupConsumer, deadlineMs = 3_000): Promise<ConsumerEvent> {
    const deadline = performance.now() + deadlineMs;
    while (performance.now() < deadline) {
      const events = await consumer.poll(50);
      if (events.length > 1) throw new Error(`several events: ${events.map(({ type }) => type).join(', ')}`);
      if (events[0] !== undefined) return events[0];
    }
    throw new Error(`no event within ${deadlineMs} ms`);
  }

  it('joins with the id that the coordinator gives, and tells its topics and the data of the assignor', async () => {
    const consumer = consumerOf({ maxPollIntervalMs: 12_345, sessionTimeoutMs: 6_789 });
    expect(await next(consumer)).toEqual({ type: 'assigned', generation: 1, partitions: [p0, p1], retained: [] });
    expect(group.joins.map(({ memberId }) => memberId)).toEqual(['', 'member-1']);
    expect(group.joins[1]).toMatchObject({
      sessionTimeoutMs: 6_789,
      rebalanceTimeoutMs: 12_345,
      subscription: { topics: ['t'], userData: Buffer.from('data'), owned: [], generation: -1 },
    });
    expect(consumer.groupMetadata()).toEqual({ groupId: 'g', generation: 1, memberId: 'member-1', groupInstanceId: null });
  });

  it('stays responsive while the others have not joined', async () => {
    let release: (() => void) | undefined;
    group.joinHeld = new Promise<void>((resolve) => (release = resolve));
    const consumer = consumerOf();
    for (let i = 0; i < 5; i++) {
      const started = performance.now();
      expect(await consumer.poll(30)).toEqual([]);
      expect(performance.now() - started).toBeLessThan(500);
    }
    expect(() => consumer.groupMetadata()).toThrow(StaleGenerationError);
    release?.();
    expect(await next(consumer)).toMatchObject({ type: 'assigned' });
  });

  it('gives revoked first, lets the old generation commit, and joins again at the next poll only', async () => {
    const consumer = consumerOf();
    await next(consumer);
    consumer.startFrom(p0, 0n);
    group.rebalance(2, [p0]);
    expect(await next(consumer)).toEqual({ type: 'revoked', partitions: [p0, p1] });
    log.append('t', 0, ['a']);
    const heartbeats = broker.count('Heartbeat');
    await expect.poll(() => broker.count('Heartbeat')).toBeGreaterThan(heartbeats + 3);
    expect(group.joins).toHaveLength(2);
    expect(consumer.groupMetadata().generation).toBe(1);
    await consumer.commit([{ ...p0, offset: 7n }]);
    expect(group.commits).toEqual([{ generation: 1, memberId: 'member-1' }]);
    expect(await next(consumer)).toEqual({ type: 'assigned', generation: 2, partitions: [p0], retained: [p0] });
    expect(group.joins[2]?.subscription).toMatchObject({ owned: [p0, p1], generation: 1 });
    expect(consumer.groupMetadata().generation).toBe(2);
    expect(await next(consumer)).toMatchObject({ type: 'batch', batch: { partition: 0, nextOffset: 1n } });
    expect(() => consumer.startFrom(p1, 0n)).toThrow(StaleGenerationError);
  });

  it('retains nothing when a generation has passed in between, in which somebody else may have owned it', async () => {
    const consumer = consumerOf();
    await next(consumer);
    group.rebalance(3, [p0, p1]);
    expect(await next(consumer)).toMatchObject({ type: 'revoked' });
    expect(await next(consumer)).toEqual({ type: 'assigned', generation: 3, partitions: [p0, p1], retained: [] });
  });

  it('retains nothing when it had to join anew because the assignment came too late', async () => {
    const consumer = consumerOf();
    await next(consumer);
    group.rebalance(2, [p0, p1]);
    group.syncErrors.push(REBALANCE_IN_PROGRESS);
    expect(await next(consumer)).toMatchObject({ type: 'revoked' });
    expect(await next(consumer)).toMatchObject({ type: 'assigned', generation: 3, retained: [] });
  });

  it('retains all when the broker gives the same generation again', async () => {
    const consumer = consumerOf();
    await next(consumer);
    group.rebalance(1, [p0, p1]);
    expect(await next(consumer)).toMatchObject({ type: 'revoked' });
    expect(await next(consumer)).toMatchObject({ type: 'assigned', generation: 1, retained: [p0, p1] });
  });

  it.each([
    ['UNKNOWN_MEMBER_ID', UNKNOWN_MEMBER_ID, ['', 'member-2']],
    ['ILLEGAL_GENERATION', ILLEGAL_GENERATION, ['member-1']],
  ])('is lost when a heartbeat is answered %s, delivers nothing more, and joins again', async (_, code, joins) => {
    const consumer = consumerOf();
    await next(consumer);
    consumer.startFrom(p0, 0n);
    log.append('t', 0, ['a']);
    group.generation = 2;
    group.heartbeat = code;
    await expect.poll(() => errorOf(() => consumer.groupMetadata())).toBeInstanceOf(StaleGenerationError);
    expect(await next(consumer)).toMatchObject({ type: 'lost', partitions: [p0, p1] });
    expect(() => consumer.startFrom(p0, 0n)).toThrow(StaleGenerationError);
    expect(await next(consumer)).toEqual({ type: 'assigned', generation: 2, partitions: [p0, p1], retained: [] });
    expect(group.joins.slice(2).map(({ memberId }) => memberId)).toEqual(joins);
    expect(group.joins.at(-1)?.subscription).toMatchObject({ owned: [], generation: -1 });
    // Not started in this generation.
    expect(await consumer.poll(150)).toEqual([]);
  });

  it('is lost by its own clock when no heartbeat is answered for the session timeout', async () => {
    const consumer = consumerOf({ sessionTimeoutMs: 300 });
    await next(consumer);
    group.heartbeat = 'silence';
    expect(await next(consumer)).toMatchObject({ type: 'lost', reason: expect.stringContaining('session timeout') as string });
  });

  it('delivers nothing after it was stopped for longer than the session, although batches wait', async () => {
    log.append('t', 0, ['a']);
    const consumer = consumerOf({ sessionTimeoutMs: 300 });
    await next(consumer);
    consumer.startFrom(p0, 0n);
    await expect.poll(() => log.fetches.length).toBeGreaterThan(1);
    // No timer and no socket of this process has its turn meanwhile.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 400);
    expect(() => consumer.groupMetadata()).toThrow(StaleGenerationError);
    await expect(consumer.commit([{ ...p0, offset: 1n }])).rejects.toThrow(StaleGenerationError);
    expect(await consumer.poll(0)).toMatchObject([{ type: 'lost' }]);
  });

  it('is lost during a rejoin when the coordinator does not know it any more', async () => {
    const consumer = consumerOf();
    await next(consumer);
    group.rebalance(2, [p0, p1]);
    expect(await next(consumer)).toMatchObject({ type: 'revoked' });
    group.joinErrors.push(UNKNOWN_MEMBER_ID);
    expect(await next(consumer)).toMatchObject({ type: 'lost', partitions: [p0, p1] });
    expect(await next(consumer)).toEqual({ type: 'assigned', generation: 2, partitions: [p0, p1], retained: [] });
    expect(group.joins.at(-1)?.subscription.owned).toEqual([]);
  });

  it('is lost when a commit is refused, and says so', async () => {
    const consumer = consumerOf({ heartbeatIntervalMs: 10_000 });
    await next(consumer);
    group.commitErrors.push(ILLEGAL_GENERATION);
    await expect(consumer.commit([{ ...p0, offset: 1n }])).rejects.toThrow(StaleGenerationError);
    expect(await next(consumer)).toMatchObject({ type: 'lost' });
  });

  it('repeats a commit while the coordinator moves', async () => {
    const consumer = consumerOf();
    await next(consumer);
    group.commitErrors.push(NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS);
    await consumer.commit([{ ...p0, offset: 1n }]);
    expect(group.commits).toHaveLength(3);
  });

  it('joins however often coordinators move and load, or the group goes on without it', async () => {
    group.joinErrors.push(NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, 0, UNKNOWN_MEMBER_ID);
    group.syncErrors.push(NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID);
    expect(await next(consumerOf())).toMatchObject({ type: 'assigned' });
  });

  it('ends where the group cannot be joined at all', async () => {
    group.joinErrors.push(INCONSISTENT_GROUP_PROTOCOL);
    const consumer = consumerOf();
    await expect(next(consumer)).rejects.toThrow(/group 'g'.*INCONSISTENT_GROUP_PROTOCOL/);
    await expect(consumer.poll(0)).rejects.toThrow(FatalError);
  });

  it('is lost and ends when another member takes its instance id, and does not take it back', async () => {
    const consumer = consumerOf({ groupInstanceId: 'i' });
    await next(consumer);
    expect(consumer.groupMetadata().groupInstanceId).toBe('i');
    group.heartbeat = FENCED_INSTANCE_ID;
    expect(await next(consumer)).toMatchObject({ type: 'lost', partitions: [p0, p1] });
    await expect(next(consumer)).rejects.toThrow(/FENCED_INSTANCE_ID/);
    expect(group.joins).toHaveLength(1);
  });

  it('leaves the group when it is not polled for too long', async () => {
    const consumer = consumerOf({ maxPollIntervalMs: 200 });
    await next(consumer);
    await expect.poll(() => group.leaves).toEqual(['member-1']);
    expect(await next(consumer)).toMatchObject({ type: 'lost' });
    expect(await next(consumer)).toMatchObject({ type: 'assigned', retained: [] });
  });

  it('does not count a poll that waits as time without a poll', async () => {
    const consumer = consumerOf({ maxPollIntervalMs: 200 });
    await next(consumer);
    expect(await consumer.poll(700)).toEqual([]);
    expect(group.leaves).toEqual([]);
  });

  it('keeps a static member in the group on close', async () => {
    const consumer = consumerOf({ groupInstanceId: 'i' });
    await next(consumer);
    await consumer.close();
    expect(group.leaves).toEqual([]);
  });

  it('leaves while it waits for the others to join, and ends the poll', async () => {
    group.joinHeld = new Promise<void>(() => undefined);
    const consumer = consumerOf();
    const poll = consumer.poll(60_000);
    await expect.poll(() => group.joins.length).toBe(2);
    const started = performance.now();
    await consumer.close();
    expect(performance.now() - started).toBeLessThan(1_000);
    expect(group.leaves).toEqual(['member-1']);
    expect(await poll).toEqual([]);
    expect(group.joins).toHaveLength(2);
    await expect(consumer.poll(0)).rejects.toThrow(FatalError);
  });

  it('closes within its deadline when the coordinator does not answer', async () => {
    const consumer = consumerOf();
    await next(consumer);
    broker.script('LeaveGroup', () => new Promise<void>(() => undefined));
    const started = performance.now();
    await consumer.close(300);
    expect(performance.now() - started).toBeLessThan(1_500);
  });

  it('joins again when its topics change, and waits for a topic that is only just being created', async () => {
    broker.topics.delete('t');
    const consumer = consumerOf({ metadataMaxAgeMs: 50, groupInstanceId: 'i' });
    await consumer.poll(300);
    expect(group.joins).toHaveLength(0);
    broker.topics.set('t', 2);
    await next(consumer);
    broker.topics.set('t', 3);
    group.generation = 2;
    expect(await next(consumer)).toMatchObject({ type: 'revoked' });
    expect(await next(consumer)).toMatchObject({ type: 'assigned', generation: 2, retained: [p0, p1] });
    const joins = group.joins.length;
    expect(await consumer.poll(300)).toEqual([]);
    expect(group.joins).toHaveLength(joins);
  });

  it('refuses two polls at once', async () => {
    const consumer = consumerOf();
    await next(consumer);
    const first = consumer.poll(200);
    await expect(consumer.poll(0)).rejects.toThrow(FatalError);
    await first;
  });

  it.each([
    ['groupId', { groupId: '' }],
    ['subscription', { subscription: { topics: [] } }],
    ['heartbeatIntervalMs', { heartbeatIntervalMs: 5_000, sessionTimeoutMs: 6_000 }],
    ['sessionTimeoutMs', { sessionTimeoutMs: 0 }],
    ['fetch.maxBytes', { fetch: { maxBytes: -1 } }],
  ])('refuses a wrong %s', (option, options) => {
    expect(() => consumerOf(options)).toThrow(ConfigurationError);
    expect(() => consumerOf(options)).toThrow(option);
  });
});

function errorOf(action: () => unknown): unknown {
  try {
    action();
    return undefined;
  } catch (error) {
    return error;
  }
}
