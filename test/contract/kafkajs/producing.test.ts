import { inject } from 'vitest';
import { kafkaContract } from '../suite/kafka-contract.ts';
import { kafkaJsSubject } from './subject.ts';

kafkaContract('kafkajs', 'producing', () => kafkaJsSubject(inject('kafkaBrokers')));
