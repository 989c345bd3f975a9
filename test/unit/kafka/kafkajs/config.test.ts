import { describe, expect, it } from 'vitest';
import { connectionConfig, type KafkaClientConfig } from '../../../../src/kafka/kafkajs/config.ts';
import { ConfigurationError } from '../../../../src/model/errors.ts';

describe('connectionConfig', () => {
  it('fills in the defaults', () => {
    expect(connectionConfig({ brokers: ['a.example:9092', '[::1]:9093'] })).toMatchObject({
      brokers: [
        { host: 'a.example', port: 9092 },
        { host: '::1', port: 9093 },
      ],
      clientId: 'tidemark',
      ssl: undefined,
      sasl: undefined,
      connectTimeoutMs: 10_000,
      requestTimeoutMs: 30_000,
      log: undefined,
    });
    expect(connectionConfig({ brokers: ['a:1'], ssl: true }).ssl).toEqual({});
    expect(connectionConfig({ brokers: ['a:1'], ssl: false }).ssl).toBeUndefined();
  });

  it.each<[string, Partial<KafkaClientConfig>, RegExp]>([
    ['no broker', { brokers: [] }, /'brokers'/],
    ['a broker without a port', { brokers: ['localhost'] }, /'localhost'.*host:port/],
    ['a URL', { brokers: ['kafka://localhost:9092'] }, /host:port/],
    ['a port that is none', { brokers: ['localhost:99999'] }, /host:port/],
    ['an empty client id', { clientId: '' }, /'clientId'/],
    ['a time-out of 0', { requestTimeout: 0 }, /'requestTimeout'/],
    ['a time-out beyond the timers', { connectionTimeout: 2 ** 31 }, /'connectionTimeout'/],
    ['a time-out that is no number', { connectionTimeout: Number.NaN }, /'connectionTimeout'/],
  ])('names the option: %s', (_, config, message) => {
    expect(() => connectionConfig({ brokers: ['localhost:9092'], ...config })).toThrow(ConfigurationError);
    expect(() => connectionConfig({ brokers: ['localhost:9092'], ...config })).toThrow(message);
  });
});
