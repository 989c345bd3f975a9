import { inject } from 'vitest';
import { kafkaContract } from '../suite/kafka-contract.ts';
import { kafkaJsSubject } from './subject.ts';

for (const transactionVersion of [1, 2] as const) {
  const traits = { transactionVersion };
  kafkaContract(
    `kafkajs, transaction version ${transactionVersion}`,
    'transactions',
    () => kafkaJsSubject(inject('kafkaBrokers'), traits),
    traits,
  );
}
