import { kafkaClient } from '../../../src/kafka/kafkajs/client.ts';
import { FaultProxy } from '../../support/fault-proxy.ts';
import type { FaultAction, FaultRule } from '../../support/fault-rule.ts';
import type { DisturbedClient, Fault, Subject, Traits } from '../suite/subject.ts';

/** The client on kafkajs' connections, on a real broker, with a fault proxy where it is to be disturbed. */
export async function kafkaJsSubject(brokers: string, { transactionVersion }: Traits = { transactionVersion: 2 }): Promise<Subject> {
  const [broker] = brokers.split(',');
  if (broker === undefined) throw new Error('no broker to test with');
  return {
    client: kafkaClient({ brokers: brokers.split(','), transactionVersion }),
    disturbed: () => disturbed(broker, transactionVersion),
    close: async () => undefined,
  };
}

async function disturbed(broker: string, transactionVersion: 1 | 2): Promise<DisturbedClient> {
  const proxy = await FaultProxy.kafka(broker);
  const once = (api: string, action: FaultAction, more: Partial<FaultRule> = {}): Fault => proxy.addRule({ api, action, ...more });
  return {
    client: kafkaClient({ brokers: [proxy.address], connectionTimeout: 2_000, transactionVersion }),
    faults: {
      loseAnswer: (api, times = 1) => once(api, 'closeAfter', { times }),
      loseRequest: (api, times = 1) => once(api, 'closeBefore', { times }),
      refuse: (api, errorCode, times = 1) => once(api, 'answerError', { errorCode, times }),
      partition: () => proxy.refuse(),
      heal: () => {
        proxy.clearRules();
        proxy.resume();
      },
    },
    close: () => proxy.close(),
  };
}
