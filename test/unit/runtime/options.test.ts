import { describe, expect, it } from 'vitest';
import { ConfigurationError } from '../../../src/model/errors.ts';
import { compileOptions, type RuntimeOptions } from '../../../src/runtime/options.ts';
import { StreamsBuilder } from '../../../src/topology/streams-builder.ts';

const builder = new StreamsBuilder();
builder.stream('in').to('out');
const topology = builder.build();

function compile(options: Partial<RuntimeOptions> = {}) {
  return compileOptions({ applicationId: 'app', topology, ...options }, '/default');
}

describe('compileOptions', () => {
  it('fills in the defaults', () => {
    expect(compile()).toMatchObject({
      guarantee: 'exactly-once',
      commitIntervalMs: 100,
      transactionTimeoutMs: 10_000,
      stateDirectory: '/default',
      onDeserialisationError: 'fail',
      onProcessingError: 'fail',
      deadLetterTopic: 'app-dead-letters',
      startFrom: 'earliest',
      offsetOutOfRange: 'error',
      sessionTimeoutMs: 45_000,
      heartbeatIntervalMs: 3_000,
      staticMembership: false,
    });
    expect(compile({ guarantee: 'at-least-once' }).commitIntervalMs).toBe(30_000);
    expect(compile({ sessionTimeoutMs: 6_000 }).heartbeatIntervalMs).toBe(2_000);
    expect(Object.isFrozen(compile())).toBe(true);
  });

  it.each<[string, Partial<RuntimeOptions>, RegExp]>([
    ['no application id', { applicationId: '' }, /'applicationId' is empty/],
    ['an application id that no topic could have', { applicationId: 'a b' }, /'applicationId' has a character/],
    ['an application id that is too long', { applicationId: 'a'.repeat(200) }, /'applicationId' has 200 characters/],
    ['an instance id that no topic could have', { instanceId: 'a/b' }, /'instanceId'/],
    ['something that is no topology', { topology: {} as never }, /'topology'.*build\(\)/],
    ['an unknown guarantee', { guarantee: 'always' as never }, /'guarantee' is "always".*'exactly-once'/],
    ['a negative interval', { commitIntervalMs: -1 }, /'commitIntervalMs' is -1/],
    ['an interval that is no number', { commitIntervalMs: Number.NaN }, /'commitIntervalMs' is NaN/],
    ['an interval above what timers hold', { commitIntervalMs: 2 ** 31 }, /'commitIntervalMs'/],
    [
      'a transaction time-out below the interval',
      { commitIntervalMs: 10_000 },
      /'transactionTimeoutMs' is 10000, not above commitIntervalMs/,
    ],
    ['too few heartbeats', { sessionTimeoutMs: 6_000, heartbeatIntervalMs: 3_000 }, /'heartbeatIntervalMs' is 3000.*2000/],
    ['a misspelt option', { comitIntervalMs: 50 } as never, /Application has no option 'comitIntervalMs'.*commitIntervalMs/],
    ['an unknown policy', { onProcessingError: 'ignore' as never }, /'onProcessingError' is "ignore".*'dead-letter'/],
    ['a dead letter topic that Kafka refuses', { deadLetterTopic: 'a/b' }, /'deadLetterTopic'/],
    ['an unknown start', { startFrom: 'begin' as never }, /'startFrom'/],
    ['an empty state directory', { stateDirectory: '' }, /'stateDirectory'/],
    ['no room for records', { maxBufferedBytes: 0 }, /'maxBufferedBytes' is 0/],
  ])('refuses %s', (_, options, message) => {
    expect(() => compile(options)).toThrow(ConfigurationError);
    expect(() => compile(options)).toThrow(message);
  });

  it('does not ask for a transaction time-out without transactions', () => {
    expect(() => compile({ guarantee: 'at-least-once', commitIntervalMs: 30_000 })).not.toThrow();
  });
});
