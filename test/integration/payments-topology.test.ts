import { randomBytes } from 'node:crypto';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from 'vitest';
import { Application, kafkaClient, partitionForKey } from '../../src/index.ts';
import { paymentsTables, paymentsTopology, type Transfer } from '../../topologies/payments.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase(inject('databaseUrl'));
});

afterAll(async () => await database.drop());

describe('money is never lost', () => {
  it('to an account that does not exist, nor booked without funds', async () => {
    const prefix = `payments-${randomBytes(6).toString('hex')}-`;
    const topics = ['transfers', 'transfers-valid', 'transfers-refused'].map((name) => `${prefix}${name}`);
    const client = kafkaClient({ brokers: inject('kafkaBrokers').split(',') });
    const admin = client.admin();
    await admin.createTopics(topics.map((topic) => ({ topic, partitions: 2 })));
    await database.query(paymentsTables('public'));
    await database.query(`INSERT INTO accounts VALUES ('alice', 1000), ('bob', 0)`);
    const producer = client.idempotentProducer();
    const application = new Application({
      applicationId: `${prefix}app`,
      topology: paymentsTopology({ prefix, database: database.url }),
      kafka: client,
      logger: pino({ level: 'silent' }),
    });
    onTestFinished(async () => {
      await application.close({ timeoutMs: 5_000 });
      await producer.close();
      await admin.deleteTopics(topics);
      await admin.close();
    });
    await producer.init();
    await producer.loadTopics(topics);
    const transfers: Transfer[] = [
      { id: '1', from: 'alice', to: 'bob', amountCents: 400 },
      { id: '2', from: 'alice', to: 'nobody', amountCents: 100 },
      { id: '3', from: 'nobody', to: 'alice', amountCents: 100 },
      { id: '4', from: 'alice', to: 'bob', amountCents: 700 },
    ];
    for (const transfer of transfers) {
      producer.append(topics[0]!, partitionForKey('one', 2), 'one', JSON.stringify(transfer), Date.now(), []);
    }
    await producer.flush();
    await application.start();
    await expect
      .poll(async () => await database.query('SELECT id, state FROM transfers ORDER BY id'), { timeout: 30_000 })
      .toEqual([
        { id: '1', state: 'booked' },
        { id: '2', state: 'declined' },
        { id: '3', state: 'declined' },
        { id: '4', state: 'declined' },
      ]);
    expect(await database.query('SELECT id, balance_cents::int AS cents FROM accounts ORDER BY id')).toEqual([
      { id: 'alice', cents: 600 },
      { id: 'bob', cents: 400 },
    ]);
    expect(await database.query('SELECT sum(amount_cents)::int AS sum, count(*)::int AS count FROM entries')).toEqual([
      { sum: 0, count: 2 },
    ]);
  });
});
