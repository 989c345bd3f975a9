import { describe, expect, it } from 'vitest';
import { containerVariables, kafkaSettings, propertiesText } from '../../../src/devstack/kafka-settings.ts';

const settings = kafkaSettings({
  listeners: [
    { name: 'BROKER', protocol: 'PLAINTEXT', bind: ':9093', advertised: 'localhost:9093' },
    { name: 'CLIENT', protocol: 'PLAINTEXT', bind: ':9092', advertised: '127.0.0.1:20001' },
  ],
  controller: 'localhost:9094',
  dataDirectory: '/data',
  sessionTimeoutMs: 1_500,
});

describe('the settings of a broker', () => {
  it('send clients to the advertised address, and the broker itself to its inner one', () => {
    expect(settings['listeners']).toBe('BROKER://:9093,CLIENT://:9092,CONTROLLER://localhost:9094');
    expect(settings['advertised.listeners']).toBe('BROKER://localhost:9093,CLIENT://127.0.0.1:20001');
    expect(settings['inter.broker.listener.name']).toBe('BROKER');
  });

  it('ask for no replica that a single node cannot have', () => {
    const factors = Object.entries(settings).filter(([name]) => /replication\.factor|min\.isr|min\.insync/.test(name));
    expect(factors.length).toBeGreaterThanOrEqual(7);
    expect(new Set(factors.map(([, value]) => value))).toEqual(new Set(['1']));
  });

  it('are spelt as the container image reads them, and escaped in a properties file', () => {
    expect(containerVariables(settings)['KAFKA_TRANSACTION_STATE_LOG_MIN_ISR']).toBe('1');
    expect(propertiesText({ a: 'C:\\x' })).toBe('a=C:\\\\x\n');
  });

  it('heartbeat several times within the session timeout', () => {
    expect(Number(settings['broker.heartbeat.interval.ms'])).toBe(300);
  });
});
