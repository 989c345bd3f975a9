import { createServer, type AddressInfo, type Socket } from 'node:net';
import { afterEach, describe, expect, inject, it } from 'vitest';
import { connectionConfig } from '../../../src/kafka/kafkajs/config.ts';
import { ClusterConnection } from '../../../src/kafka/kafkajs/connection.ts';
import { BrokerUnreachableError, ConnectionLostError } from '../../../src/kafka/kafkajs/connection-error.ts';
import { fetchExchange } from '../../../src/kafka/kafkajs/wire/fetch.ts';
import { LATEST, listOffsetsExchange } from '../../../src/kafka/kafkajs/wire/list-offsets.ts';
import { metadataExchange } from '../../../src/kafka/kafkajs/wire/metadata.ts';
import { FatalError, RetriableError } from '../../../src/model/errors.ts';
import { FaultProxy } from '../../support/fault-proxy.ts';
import { Closing, unique } from '../suite/subject.ts';
import { kafkaClient } from '../../../src/kafka/kafkajs/client.ts';

describe('ClusterConnection', () => {
  const brokers = inject('kafkaBrokers');
  const closing = new Closing();
  afterEach(() => closing.closeAll());

  function connect(address: string, options: { requestTimeout?: number; connectionTimeout?: number } = {}): ClusterConnection {
    const connection = new ClusterConnection(connectionConfig({ brokers: address.split(','), ...options }));
    closing.add({ close: async () => connection.close() });
    return connection;
  }

  async function proxied(options?: {
    requestTimeout?: number;
  }): Promise<{ proxy: FaultProxy; connection: ClusterConnection; nodeId: number }> {
    const proxy = closing.add(await FaultProxy.kafka(brokers.split(',')[0] ?? ''));
    const connection = connect(proxy.address, options);
    const nodeId = (await connection.metadata([])).brokers[0]?.nodeId ?? -1;
    return { proxy, connection, nodeId };
  }

  async function topicOf(): Promise<string> {
    const topic = unique('connection');
    await closing.add(kafkaClient({ brokers: brokers.split(',') }).admin()).createTopics([{ topic, partitions: 1 }]);
    return topic;
  }

  it('holds one socket per broker, and goes on with that of the seed', async () => {
    const { proxy, connection, nodeId } = await proxied();
    await connection.send(nodeId, metadataExchange([]));
    await connection.coordinator('group', unique('group'));
    expect(proxy.connections).toBe(1);
  });

  it('sends in order and has many requests in flight', async () => {
    const { proxy, connection, nodeId } = await proxied();
    proxy.latencyMs = 50;
    const sent: number[] = [];
    const answered: number[] = [];
    const started = performance.now();
    await Promise.all(
      Array.from({ length: 100 }, async (_, i) => {
        await connection.send(nodeId, metadataExchange([]), { onSent: () => sent.push(i) });
        answered.push(i);
      }),
    );
    const inOrder = Array.from({ length: 100 }, (_, i) => i);
    expect(sent).toEqual(inOrder);
    expect(answered).toEqual(inOrder);
    // One after the other they would take 100 round trips of 100 ms.
    expect(performance.now() - started).toBeLessThan(5_000);
  });

  it.each(['closeAfter', 'closeBefore', 'closeOnForward'] as const)(
    '%s: the outcome is unknown, and the next request works',
    async (action) => {
      const { proxy, connection, nodeId } = await proxied();
      proxy.addRule({ api: 'Metadata', action });
      const error: unknown = await connection.send(nodeId, metadataExchange([])).catch((caught: unknown) => caught);
      expect(error).toBeInstanceOf(ConnectionLostError);
      expect(error).toBeInstanceOf(RetriableError);
      expect(String(error)).toMatch(/Metadata v7.*not known/);
      await connection.send(nodeId, metadataExchange([]));
    },
  );

  it('a request that is not answered in time takes down its connection, not the ones after it', async () => {
    const { proxy, connection, nodeId } = await proxied();
    proxy.addRule({ api: 'Metadata', action: 'dropResponse' });
    const stuck = connection.send(nodeId, metadataExchange([]), { timeoutMs: 400 });
    proxy.addRule({ api: 'ListOffsets', action: 'dropRequest' });
    const topic = await topicOf();
    const behind = connection.send(nodeId, listOffsetsExchange([{ topic, partition: 0, timestamp: LATEST }], 'read-committed'), {
      timeoutMs: 20_000,
    });
    const started = performance.now();
    await expect(stuck).rejects.toThrow(ConnectionLostError);
    await expect(behind).rejects.toThrow(ConnectionLostError);
    expect(performance.now() - started).toBeLessThan(5_000);
    expect(
      await connection.send(nodeId, listOffsetsExchange([{ topic, partition: 0, timestamp: LATEST }], 'read-committed')),
    ).toMatchObject([{ topic, partition: 0, errorCode: 0, offset: 0n }]);
  });

  it('a fetch that waits for data holds up nobody on another ClusterConnection', async () => {
    const topic = await topicOf();
    const [fetching, asking] = [connect(brokers), connect(brokers)];
    const { nodeId, epoch } = await fetching.leader(topic, 0);
    await asking.connect();
    const waiting = fetching.send(
      nodeId,
      fetchExchange({
        maxWaitMs: 4_000,
        minBytes: 1,
        maxBytes: 1_000,
        isolation: 'read-committed',
        partitions: [{ topic, partition: 0, leaderEpoch: epoch, offset: 0n, maxBytes: 1_000 }],
      }),
    );
    const started = performance.now();
    await asking.send(nodeId, metadataExchange([]));
    expect(performance.now() - started).toBeLessThan(3_000);
    await waiting;
    expect(performance.now() - started).toBeGreaterThan(3_500);
  });

  it('says what it needs when the broker does not speak a version', async () => {
    const { connection, nodeId } = await proxied();
    const impossible = { ...metadataExchange([]), apiVersion: 99 };
    await expect(connection.send(nodeId, impossible)).rejects.toThrow(FatalError);
    await expect(connection.send(nodeId, impossible)).rejects.toThrow(/Metadata v99 is needed.*speaks versions 0 to \d+/);
    const range = await connection.versions(nodeId, 3);
    expect(range?.maxVersion).toBeGreaterThan(7);
  });

  it('looks a coordinator up once, until it is told to forget it', async () => {
    const { proxy, connection } = await proxied();
    const group = unique('group');
    await connection.coordinator('group', group);
    await connection.coordinator('group', group);
    expect(proxy.requests('FindCoordinator')).toBe(1);
    connection.forgetCoordinator('group', group);
    await connection.coordinator('group', group);
    expect(proxy.requests('FindCoordinator')).toBe(2);
    await connection.coordinator('transaction', group);
    expect(proxy.requests('FindCoordinator')).toBe(3);
  });

  it('asks for a leader once, and says what is wrong when there is none', async () => {
    const { proxy, connection } = await proxied();
    const topic = await topicOf();
    const before = proxy.requests('Metadata');
    await connection.leader(topic, 0);
    await connection.leader(topic, 0);
    expect(proxy.requests('Metadata')).toBe(before + 1);
    await Promise.all([connection.refresh(), connection.refresh()]);
    expect(proxy.requests('Metadata')).toBe(before + 2);
    await expect(connection.leader(topic, 7)).rejects.toThrow(/has 1 partitions/);
    await expect(connection.leader(unique('absent'), 0)).rejects.toThrow(/UNKNOWN_TOPIC_OR_PARTITION/);
  });

  it('fails at once what is in flight when it is closed, and lets nothing linger', async () => {
    const { proxy, connection, nodeId } = await proxied();
    proxy.addRule({ api: 'Metadata', action: 'dropResponse' });
    const inFlight = connection.send(nodeId, metadataExchange([]), { timeoutMs: 20_000 });
    await expect.poll(() => proxy.requests('Metadata')).toBe(2);
    connection.close();
    await expect(inFlight).rejects.toThrow(ConnectionLostError);
    await expect(connection.send(nodeId, metadataExchange([]))).rejects.toThrow(BrokerUnreachableError);
    await expect.poll(() => proxy.connections).toBe(0);
  });

  it('gives up within the deadline on a broker that accepts and never speaks', async () => {
    const sockets: Socket[] = [];
    const silent = createServer((socket) => void sockets.push(socket));
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    closing.add({
      close: async () => {
        silent.close();
        for (const socket of sockets) socket.destroy();
      },
    });
    const connection = connect(`127.0.0.1:${(silent.address() as AddressInfo).port}`, { connectionTimeout: 300 });
    const started = performance.now();
    await expect(connection.connect(2_000)).rejects.toThrow(BrokerUnreachableError);
    expect(performance.now() - started).toBeLessThan(8_000);
  });

  it('tries a broker that is away at a bounded rate, and finds it when it is back', async () => {
    const { proxy, connection, nodeId } = await proxied();
    let attempts = 0;
    const counting = createServer((socket) => {
      attempts++;
      socket.destroy();
    });
    await new Promise<void>((resolve) => counting.listen(0, '127.0.0.1', resolve));
    closing.add({ close: async () => void counting.close() });
    const away = connect(`127.0.0.1:${(counting.address() as AddressInfo).port}`);
    const until = performance.now() + 1_500;
    let failures = 0;
    while (performance.now() < until) await away.connect(1_000).catch(() => failures++);
    expect(failures).toBeGreaterThan(3);
    expect(attempts).toBeLessThan(20);

    proxy.refuse();
    await expect(connection.send(nodeId, metadataExchange([]))).rejects.toThrow(RetriableError);
    proxy.resume();
    await expect
      .poll(() =>
        connection.send(nodeId, metadataExchange([])).then(
          () => 'answered',
          () => 'away',
        ),
      )
      .toBe('answered');
  });
});
