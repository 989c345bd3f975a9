import { afterEach, describe, expect, inject, it, vi } from 'vitest';
import { kafkaClient } from '../../../src/kafka/kafkajs/client.ts';
import { ErrorCode } from '../../../src/kafka/kafkajs/wire/error-code.ts';
import { FaultProxy } from '../../support/fault-proxy.ts';
import { Closing, unique } from '../suite/subject.ts';
import { plainKafka } from './plain.ts';

// kafkajs retries faster where this is 'test', which is no user's case; it looks once, when it is loaded.
vi.hoisted(() => {
  process.env['NODE_ENV'] = 'production';
});

describe('the first retry beside plain kafkajs', () => {
  const closing = new Closing();
  afterEach(() => closing.closeAll());

  it('InitProducerId answers CONCURRENT_TRANSACTIONS once: kafkajs waits 300 ms', async () => {
    const proxy = closing.add(await FaultProxy.kafka(inject('kafkaBrokers').split(',')[0] ?? ''));
    const concurrent = () => proxy.addRule({ api: 'InitProducerId', action: 'answerError', errorCode: ErrorCode.CONCURRENT_TRANSACTIONS });
    const timed = async (action: () => Promise<unknown>): Promise<number> => {
      const started = performance.now();
      await action();
      return performance.now() - started;
    };
    const ours = closing.add(kafkaClient({ brokers: [proxy.address] }).transactionalProducer({ transactionalId: unique('ours') }));
    await ours.init();
    concurrent();
    const oursMs = await timed(() => ours.init());
    expect(proxy.requests('InitProducerId')).toBe(3);

    const plain = plainKafka(proxy.address, {}).producer({
      transactionalId: unique('plain'),
      idempotent: true,
      createPartitioner: () => () => 0,
    });
    closing.add({ close: () => plain.disconnect() });
    await plain.connect();
    concurrent();
    const plainMs = await timed(() => plain.transaction());
    expect(plainMs).toBeGreaterThan(200);
    expect(oursMs).toBeLessThan(plainMs);
  });
});
