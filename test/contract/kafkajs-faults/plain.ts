import { Kafka, logLevel, type Consumer, type KafkaMessage, type Message, type Producer } from 'kafkajs';

/** kafkajs as a user has it, with its own retries unless they are the matter. */
export function plainKafka(
  brokers: string,
  retry: { initialRetryTime?: number; retries?: number } = { initialRetryTime: 50, retries: 3 },
): Kafka {
  return new Kafka({ clientId: 'plain', brokers: brokers.split(','), logLevel: logLevel.NOTHING, retry });
}

export async function plainTransactionalProducer(kafka: Kafka, transactionalId: string): Promise<Producer> {
  const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1, createPartitioner: explicitPartition });
  await producer.connect();
  return producer;
}

export function explicitPartition(): (input: { message: Message }) => number {
  return ({ message }) => message.partition ?? 0;
}

/** What kafkajs' consumer delivers of partition 0, from `from` until it has passed `end` (offsets of aborted records and markers included). */
export async function readWithKafkaJs(
  kafka: Kafka,
  topic: string,
  options: { groupId: string; from: bigint; end: bigint; maxBytesPerPartition?: number; deadlineMs?: number },
): Promise<{ messages: KafkaMessage[]; reachedEnd: boolean }> {
  const { groupId, from, end, maxBytesPerPartition, deadlineMs = 15_000 } = options;
  const consumer: Consumer = kafka.consumer({
    groupId,
    maxWaitTimeInMs: 50,
    ...(maxBytesPerPartition === undefined ? {} : { maxBytesPerPartition }),
  });
  const messages: KafkaMessage[] = [];
  let deadline: NodeJS.Timeout | undefined;
  const reachedEnd = new Promise<boolean>((resolve) => {
    deadline = setTimeout(() => resolve(false), deadlineMs);
    consumer.on(consumer.events.END_BATCH_PROCESS, ({ payload }) => {
      if (BigInt(payload.lastOffset) + 1n >= end) resolve(true);
    });
  });
  try {
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    const running = consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch }) => {
        messages.push(...batch.messages);
      },
    });
    consumer.seek({ topic, partition: 0, offset: String(from) });
    await running;
    return { reachedEnd: await reachedEnd, messages };
  } finally {
    clearTimeout(deadline);
    await consumer.disconnect();
  }
}
