import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { Kafka, logLevel, type PartitionAssigner } from 'kafkajs';
import type { ConnectionConfig } from './config.ts';

/*
 * The parts of kafkajs 2.2.4 behind its public types that this client stands on. The version is pinned exactly, and the contract suite
 * fails when one of them changes.
 */

export interface RawCluster {
  readonly rootLogger: unknown;
  readonly connectionPoolBuilder: {
    build(destination: { host: string; port: number; rack?: string | null }): Promise<RawConnectionPool>;
  };
  readonly brokerPool: {
    createBroker(options: { connectionPool: RawConnectionPool; logger: unknown; nodeId: number | null }): RawBroker;
  };
}

export interface RawConnectionPool {
  /** Two connections that connect on demand: kafkajs sends Fetch on the second one and all else on the first. */
  readonly pool: readonly [RawConnection, RawConnection];
}

export interface RawConnection {
  readonly sasl: unknown;
  readonly socket?: Socket;
  readonly requestQueue: RawRequestQueue;
  isConnected(): boolean;
  isAuthenticated(): boolean;
  authenticate(): Promise<void>;
  nextCorrelationId(): number;
}

export interface RawRequestQueue {
  readonly pending: readonly unknown[];
  scheduleCheckPendingRequests(): void;
  push(request: {
    entry: {
      apiKey: number;
      apiVersion: number;
      apiName: string;
      correlationId: number;
      resolve(answer: { payload: Buffer | null }): void;
      reject(error: Error): void;
    };
    expectResponse: boolean;
    requestTimeout: number | null;
    sendRequest(): void;
  }): void;
  rejectAll(error: Error): void;
  destroy(): void;
}

export interface VersionRange {
  readonly minVersion: number;
  readonly maxVersion: number;
}

/** kafkajs' broker: opens connection 0 of its pool, asks for the api versions, and logs in. */
export interface RawBroker {
  readonly versions: Readonly<Record<number, VersionRange>> | null;
  connect(): Promise<void>;
}

/** A cluster of kafkajs that has not connected yet. Nothing in it retries, and no request of its own has a timer: deadlines are ours. */
export function createRawCluster(config: ConnectionConfig): RawCluster {
  const log = config.log;
  const kafka = new Kafka({
    brokers: config.brokers.map(({ host, port }) => `${host}:${port}`),
    clientId: config.clientId,
    ...(config.ssl === undefined ? {} : { ssl: config.ssl }),
    ...(config.sasl === undefined ? {} : { sasl: config.sasl }),
    connectionTimeout: config.connectTimeoutMs,
    authenticationTimeout: config.connectTimeoutMs,
    enforceRequestTimeout: false,
    retry: { retries: 0 },
    logLevel: log === undefined ? logLevel.NOTHING : logLevel.WARN,
    logCreator: () => (entry) => log?.('debug', `kafkajs ${entry.namespace}: ${entry.log.message}`, entry.log),
    socketFactory: ({ host, port, ssl, onConnect }) => {
      const socket =
        ssl === undefined || ssl === null
          ? connectTcp({ host, port }, onConnect)
          : connectTls({ host, port, ...(isIP(host) === 0 ? { servername: host } : {}), ...ssl }, onConnect);
      socket.setNoDelay(true);
      socket.setKeepAlive(true, 30_000);
      return socket;
    },
  });
  // An assigner's factory is called once, while the consumer is made, and is handed the cluster: kafkajs' public way to its connections.
  let cluster: RawCluster | undefined;
  const capture: PartitionAssigner = (context) => {
    cluster = context.cluster as unknown as RawCluster;
    return { name: 'none', version: 0, assign: async () => [], protocol: () => ({ name: 'none', metadata: Buffer.alloc(0) }) };
  };
  kafka.consumer({ groupId: 'none', partitionAssigners: [capture] });
  if (cluster === undefined) throw new Error('kafkajs did not hand its cluster to the assigner; version 2.2.4 is needed');
  return cluster;
}
