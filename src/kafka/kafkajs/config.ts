import type { ConnectionOptions as TlsOptions } from 'node:tls';
import type { SASLOptions } from 'kafkajs';
import { ConfigurationError } from '../../model/errors.ts';

export type KafkaLogLevel = 'debug' | 'info' | 'warn' | 'error';

/** Receives one line per event in the life of a connection, none per record. */
export type KafkaLog = (level: KafkaLogLevel, message: string, fields: Readonly<Record<string, unknown>>) => void;

/** How to reach one Kafka cluster. The names are those of kafkajs' `KafkaConfig`. */
export interface KafkaClientConfig {
  /** `host:port` of one broker or more (`[::1]:9092` for IPv6); the rest of the cluster is learned from them. */
  readonly brokers: readonly string[];
  /** Names this application in the broker's logs, metrics and quotas. Default `tidemark`. */
  readonly clientId?: string;
  /** TLS: true for the system's certificate authorities, or Node's TLS options (ca, cert, key, servername...). */
  readonly ssl?: boolean | TlsOptions;
  /** PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS, as kafkajs describes them. */
  readonly sasl?: SASLOptions;
  /** Deadline of a new connection: TCP, TLS, version look-up and login together. Milliseconds, default 10 s. */
  readonly connectionTimeout?: number;
  /** Deadline of one request, answer included, where a call has no own one. Milliseconds, default 30 s. */
  readonly requestTimeout?: number;
  /**
   * The newest transaction protocol that is spoken. Default 2 (KIP-890: the epoch rises with each transaction, and partitions need not be added
   * one by one) where the cluster has finalized it, as Kafka 4 does; else 1, which every cluster speaks.
   */
  readonly transactionVersion?: TransactionVersion;
  readonly log?: KafkaLog;
}

export type TransactionVersion = 1 | 2;

export interface BrokerAddress {
  readonly host: string;
  readonly port: number;
}

/** `KafkaClientConfig` with every default filled in. */
export interface ConnectionConfig {
  readonly brokers: readonly BrokerAddress[];
  readonly clientId: string;
  readonly ssl: TlsOptions | undefined;
  readonly sasl: SASLOptions | undefined;
  readonly connectTimeoutMs: number;
  readonly requestTimeoutMs: number;
  readonly transactionVersion: TransactionVersion;
  readonly log: KafkaLog | undefined;
}

/** Throws ConfigurationError that names the option. */
export function connectionConfig(config: KafkaClientConfig): ConnectionConfig {
  if (!Array.isArray(config.brokers)) throw new ConfigurationError("'brokers' is not a list. Give a list of 'host:port'.");
  if (config.brokers.length === 0) {
    throw new ConfigurationError("'brokers' is empty. Give at least one 'host:port'.");
  }
  if (config.clientId === '') throw new ConfigurationError("'clientId' is empty. Leave it out or give it a name.");
  if (config.sasl !== undefined && typeof config.sasl.mechanism !== 'string') {
    throw new ConfigurationError("'sasl.mechanism' is missing. Give 'plain', 'scram-sha-256', 'scram-sha-512', 'oauthbearer' or 'aws'.");
  }
  const transactionVersion = config.transactionVersion ?? 2;
  if (transactionVersion !== 1 && transactionVersion !== 2) {
    throw new ConfigurationError(`'transactionVersion' is ${String(transactionVersion)}. Give 1 or 2.`);
  }
  return {
    brokers: config.brokers.map(brokerAddress),
    clientId: config.clientId ?? 'tidemark',
    ssl: config.ssl === true ? {} : config.ssl === false ? undefined : config.ssl,
    sasl: config.sasl,
    connectTimeoutMs: milliseconds('connectionTimeout', config.connectionTimeout, 10_000),
    requestTimeoutMs: milliseconds('requestTimeout', config.requestTimeout, 30_000),
    transactionVersion,
    log: config.log,
  };
}

/** A positive number of milliseconds, or the default. Throws ConfigurationError that names the option. */
export function milliseconds(option: string, value: number | undefined, defaultMs: number): number {
  if (value === undefined) return defaultMs;
  // Timers of Node hold 31 bits; a larger delay would fire at once.
  if (typeof value === 'number' && value > 0 && value <= 0x7fffffff) return value;
  throw new ConfigurationError(`'${option}' is ${String(value)}. Give a number of milliseconds above 0 and below 2^31.`);
}

function brokerAddress(broker: string): BrokerAddress {
  const match = /^(?:\[([^\]]+)\]|([^:[\]\s]+)):(\d{1,5})$/.exec(broker);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  if (host === undefined || !(port > 0 && port < 65_536)) {
    throw new ConfigurationError(`'brokers' holds '${broker}', which is not 'host:port'.`);
  }
  return { host, port };
}
