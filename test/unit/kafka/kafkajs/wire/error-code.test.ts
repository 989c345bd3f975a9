import { describe, expect, it } from 'vitest';
import { ErrorCode, errorName, isRetriable, toKafkaError } from '../../../../../src/kafka/kafkajs/wire/error-code.ts';
import { FatalError, FencedError, RecordTooLargeError, RetriableError, StaleGenerationError } from '../../../../../src/model/errors.ts';

const codes = Object.entries(ErrorCode).filter(([, code]) => code !== ErrorCode.NONE);

describe('toKafkaError', () => {
  it.each(codes)('%s is one of the five errors and says where', (name, code) => {
    const error = toKafkaError(code, { api: 'Produce', topic: 'orders', partition: 3, detail: 'as the broker says' });
    expect([RetriableError, FencedError, StaleGenerationError, FatalError, RecordTooLargeError]).toContain(error.constructor);
    expect(error.message).toMatch(new RegExp(`^Produce of orders/3 answered ${name} \\(as the broker says\\)[.:]`));
  });

  it('gives what Kafka calls retriable to be tried again', () => {
    const retriable = codes.filter(([, code]) => isRetriable(code));
    expect(retriable.length).toBeGreaterThan(25);
    for (const [, code] of retriable) expect(toKafkaError(code, { api: 'Fetch' })).toBeInstanceOf(RetriableError);
  });

  it.each([
    [ErrorCode.PRODUCER_FENCED, FencedError],
    [ErrorCode.INVALID_PRODUCER_EPOCH, FencedError],
    [ErrorCode.INVALID_PRODUCER_ID_MAPPING, FencedError],
    [ErrorCode.ILLEGAL_GENERATION, StaleGenerationError],
    [ErrorCode.UNKNOWN_MEMBER_ID, StaleGenerationError],
    [ErrorCode.CONCURRENT_TRANSACTIONS, RetriableError],
    [ErrorCode.UNSTABLE_OFFSET_COMMIT, RetriableError],
    [ErrorCode.MESSAGE_TOO_LARGE, RecordTooLargeError],
    [ErrorCode.TOPIC_AUTHORIZATION_FAILED, FatalError],
    [ErrorCode.FENCED_INSTANCE_ID, FatalError],
  ])('%i is answered by its remedy', (code, type) => {
    expect(toKafkaError(code, { api: 'EndTxn', transactionalId: 'app-1' })).toBeInstanceOf(type);
  });

  it('knows no code by heart that Kafka has not got yet', () => {
    expect(errorName(9_999)).toContain('9999');
    expect(toKafkaError(9_999, { api: 'EndTxn', group: 'g' })).toBeInstanceOf(FatalError);
    expect(toKafkaError(9_999, { api: 'EndTxn', group: 'g' }).message).toContain("group 'g'");
  });
});
