/**
 * The map job as one would write it by hand with kafkajs: a transactional producer per input partition (kafkajs cannot fence by the group's
 * generation, so each partition needs its own id), a transaction of `commitMs`, offsets sent inside of it, `read_committed` input.
 */
import { parseArgs } from 'node:util';
import { Kafka, logLevel, type Producer, type Transaction } from 'kafkajs';

const { values: options } = parseArgs({
  options: {
    brokers: { type: 'string' },
    group: { type: 'string' },
    in: { type: 'string' },
    out: { type: 'string' },
    'commit-ms': { type: 'string', default: '100' },
  },
});
const { brokers, group, in: input, out } = options;
if (brokers === undefined || group === undefined || input === undefined || out === undefined) {
  throw new Error('usage: plain-kafkajs.ts --brokers HOST:PORT --group NAME --in TOPIC --out TOPIC [--commit-ms 100]');
}
const commitMs = Number(options['commit-ms']);

// Its default first retry of 300 ms would make each transaction that follows another at once wait that long.
const kafka = new Kafka({
  clientId: group,
  brokers: brokers.split(','),
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 5, retries: 1000 },
});

interface PartitionTask {
  readonly producer: Producer;
  transaction: Transaction | undefined;
  next: string;
  timer: NodeJS.Timeout | undefined;
  turn: Promise<void>;
}

const tasks = new Map<number, PartitionTask>();

async function taskOf(partition: number): Promise<PartitionTask> {
  let task = tasks.get(partition);
  if (task === undefined) {
    const producer = kafka.producer({
      transactionalId: `${group}-${partition}`,
      idempotent: true,
      maxInFlightRequests: 1,
      createPartitioner:
        () =>
        ({ message }) =>
          message.partition ?? 0,
    });
    task = { producer, transaction: undefined, next: '0', timer: undefined, turn: Promise.resolve() };
    tasks.set(partition, task);
    await producer.connect();
  }
  return task;
}

async function inTurn(task: PartitionTask, action: () => Promise<void>): Promise<void> {
  const turn = task.turn.then(action);
  task.turn = turn;
  await turn;
}

async function commit(task: PartitionTask, partition: number): Promise<void> {
  clearTimeout(task.timer);
  const transaction = task.transaction;
  if (transaction === undefined) return;
  await transaction.sendOffsets({
    consumerGroupId: group ?? '',
    topics: [{ topic: input ?? '', partitions: [{ partition, offset: task.next }] }],
  });
  await transaction.commit();
  task.transaction = undefined;
}

const consumer = kafka.consumer({ groupId: group, maxWaitTimeInMs: 50, maxBytesPerPartition: 1 << 19, maxBytes: 10 << 20 });
await consumer.connect();
await consumer.subscribe({ topics: [input], fromBeginning: true });
await consumer.run({
  autoCommit: false,
  eachBatchAutoResolve: false,
  partitionsConsumedConcurrently: 4,
  eachBatch: async (payload) => {
    const { batch } = payload;
    const task = await taskOf(batch.partition);
    await inTurn(task, async () => {
      const messages = batch.messages.map((message) => {
        const value = JSON.parse(message.value?.toString() ?? 'null') as Record<string, unknown>;
        value['processed'] = true;
        return { key: message.key, value: JSON.stringify(value), partition: batch.partition, timestamp: message.timestamp };
      });
      if (task.transaction === undefined) {
        task.transaction = await task.producer.transaction();
        task.timer = setTimeout(() => {
          inTurn(task, () => commit(task, batch.partition)).catch((error: unknown) => {
            throw error;
          });
        }, commitMs);
      }
      await task.transaction.send({ topic: out, messages });
      task.next = (BigInt(batch.lastOffset()) + 1n).toString();
      payload.resolveOffset(batch.lastOffset());
    });
  },
});
console.log('{"state":"running"}');
