import { setTimeout as sleep } from 'node:timers/promises';
import { FatalError, TidemarkError } from '../../model/errors.ts';
import type { BrokerAddress, ConnectionConfig } from './config.ts';
import { BrokerUnreachableError, ConnectionLostError, connectError } from './connection-error.ts';
import type { RawBroker, RawCluster, RawConnection, VersionRange } from './raw-cluster.ts';
import type { Exchange } from './wire/exchange.ts';
import { WireReader } from './wire/reader.ts';
import { WireWriter } from './wire/writer.ts';

const FIRST_BACK_OFF_MS = 20;
const LONGEST_BACK_OFF_MS = 1_000;

export interface SendOptions {
  /** Deadline, connecting and answer included. */
  readonly timeoutMs: number;
  /** Called when the request has been handed to the socket: from then on the broker may execute it. */
  readonly onSent?: () => void;
}

interface OpenConnection {
  readonly broker: RawBroker;
  readonly connection: RawConnection;
}

/**
 * One connection to one broker, opened when it is needed and again after it was lost. Requests leave in the order of `send` and several may
 * be in flight; the broker answers them in that order. A request whose deadline passes takes the connection down, because all answers
 * behind it are stuck too: every request on it then fails with ConnectionLostError, and the next one opens a new connection.
 */
export class BrokerLink {
  readonly address: BrokerAddress;
  readonly #cluster: RawCluster;
  readonly #config: ConnectionConfig;
  readonly #writer = new WireWriter(16 * 1024);
  #open: OpenConnection | undefined;
  #opening: Promise<OpenConnection> | undefined;
  /** Requests prepare themselves one after the other, so that none overtakes another while a connection is opened or logged in. */
  #turn: Promise<unknown> = Promise.resolve();
  #failures = 0;
  #failureCount = 0;
  #lastFailure: TidemarkError | undefined;
  #retryAt = 0;
  readonly #closing = new AbortController();

  constructor(cluster: RawCluster, config: ConnectionConfig, address: BrokerAddress) {
    this.#cluster = cluster;
    this.#config = config;
    this.address = address;
  }

  get name(): string {
    return `${this.address.host}:${this.address.port}`;
  }

  get connected(): boolean {
    return this.#open?.connection.isConnected() === true;
  }

  /** The versions of each api that the broker speaks, by api key. */
  async versions(timeoutMs: number): Promise<Readonly<Record<number, VersionRange>>> {
    const deadline = performance.now() + timeoutMs;
    const failuresBefore = this.#failureCount;
    const ready = this.#next(() => this.#ready(failuresBefore, deadline));
    const { broker } = await within(ready, timeoutMs, () => this.#unreachable(`no connection within ${timeoutMs} ms`));
    return broker.versions ?? {};
  }

  send<T>(exchange: Exchange<T>, options: SendOptions): Promise<T> {
    const { timeoutMs, onSent } = options;
    const what = `${exchange.apiName} v${exchange.apiVersion} to broker ${this.name}`;
    const deadline = performance.now() + timeoutMs;
    const failuresBefore = this.#failureCount;
    return new Promise<T>((resolve, reject) => {
      let sentOn: OpenConnection | undefined;
      let settled = false;
      const timer = setTimeout(() => {
        if (settled) return;
        if (sentOn === undefined) fail(this.#unreachable(`${what} could not be sent within ${timeoutMs} ms`));
        else this.#drop(sentOn, `${what} was not answered within ${timeoutMs} ms`);
      }, timeoutMs);
      const fail = (error: unknown): void => {
        settled = true;
        clearTimeout(timer);
        reject(error);
      };
      const settle = (decode: () => T): void => {
        if (settled) return;
        try {
          const value = decode();
          settled = true;
          clearTimeout(timer);
          resolve(value);
        } catch (error) {
          fail(
            error instanceof TidemarkError
              ? error
              : new FatalError(`the answer of ${what} could not be read: ${String(error)}`, { cause: error }),
          );
        }
      };
      this.#next(async () => {
        if (settled) return;
        const open = await this.#ready(failuresBefore, deadline);
        if (settled) return;
        this.#push(open, exchange, {
          onSent: () => {
            sentOn = open;
            onSent?.();
          },
          answered: (payload) => settle(() => this.#decode(exchange, payload)),
          lost: (error) => {
            if (settled) return;
            fail(
              sentOn === undefined
                ? this.#unreachable(`${what} could not be sent: ${error.message}`, error)
                : new ConnectionLostError(`${what}: ${error.message}. Whether the broker executed the request is not known.`, {
                    cause: error,
                  }),
            );
          },
        });
      }).catch(fail);
    });
  }

  /** Ends the connection. What is in flight fails with ConnectionLostError. */
  close(): void {
    this.#closing.abort();
    if (this.#open !== undefined) this.#drop(this.#open, 'the connection was closed by this client');
  }

  #next<T>(prepare: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(prepare);
    // Only the order matters to the next one; the outcome is that of `turn`, which its own caller awaits.
    this.#turn = turn.then(
      () => undefined,
      () => undefined,
    );
    return turn;
  }

  /** `failuresBefore`: an attempt to connect that failed after the request was made has failed for that request too. */
  async #ready(failuresBefore: number, deadline: number): Promise<OpenConnection> {
    if (this.#closing.signal.aborted) throw this.#unreachable('this client is closed');
    if (this.#failureCount !== failuresBefore && this.#lastFailure !== undefined) throw this.#lastFailure;
    if (this.#open !== undefined && !this.#open.connection.isConnected()) this.#drop(this.#open, 'the broker closed the connection');
    if (this.#open === undefined) {
      const waitMs = this.#retryAt - performance.now();
      if (waitMs > 0) {
        if (performance.now() + waitMs > deadline) throw this.#lastFailure ?? this.#unreachable('not reachable before the deadline');
        await sleep(waitMs, undefined, { signal: this.#closing.signal }).catch(() => undefined);
        if (this.#closing.signal.aborted) throw this.#unreachable('this client is closed');
      }
      this.#opening ??= this.#connect();
      try {
        return await this.#opening;
      } finally {
        this.#opening = undefined;
      }
    }
    const { connection } = this.#open;
    // A session of limited length (KIP-368) is renewed before the next request; kafkajs knows when.
    if (connection.sasl !== null && connection.sasl !== undefined && !connection.isAuthenticated()) {
      const open = this.#open;
      try {
        await within(connection.authenticate(), this.#config.connectTimeoutMs, () => this.#unreachable('no new login in time'));
      } catch (error) {
        this.#drop(open, 'the session could not be renewed');
        throw connectError(error, this.name);
      }
    }
    return this.#open;
  }

  async #connect(): Promise<OpenConnection> {
    const { connectTimeoutMs, log } = this.#config;
    const pool = await this.#cluster.connectionPoolBuilder.build({ host: this.address.host, port: this.address.port });
    const [connection] = pool.pool;
    const broker = this.#cluster.brokerPool.createBroker({ connectionPool: pool, logger: this.#cluster.rootLogger, nodeId: null });
    quietTimers(connection);
    const open: OpenConnection = { broker, connection };
    try {
      await within(
        broker.connect(),
        connectTimeoutMs,
        () => this.#unreachable(`no connection within ${connectTimeoutMs} ms`),
        this.#closing.signal,
      );
      if (this.#closing.signal.aborted) throw this.#unreachable('this client is closed');
    } catch (error) {
      const failure = connectError(error, this.name);
      hangUp(connection, failure);
      this.#failures++;
      this.#failureCount++;
      this.#lastFailure = failure;
      const backOffMs = Math.min(FIRST_BACK_OFF_MS * 2 ** (this.#failures - 1), LONGEST_BACK_OFF_MS);
      this.#retryAt = performance.now() + backOffMs * (0.8 + 0.4 * Math.random());
      throw failure;
    }
    this.#failures = 0;
    this.#lastFailure = undefined;
    this.#open = open;
    connection.socket?.once('close', () => this.#drop(open, 'the connection broke'));
    log?.('debug', 'connected to a Kafka broker', { broker: this.name });
    return open;
  }

  #push<T>(
    open: OpenConnection,
    exchange: Exchange<T>,
    on: { onSent(): void; answered(payload: Buffer | null): void; lost(error: Error): void },
  ): void {
    this.#checkVersion(open, exchange);
    const { connection } = open;
    const correlationId = connection.nextCorrelationId();
    const request = this.#encode(exchange, correlationId);
    connection.requestQueue.push({
      entry: {
        apiKey: exchange.apiKey,
        apiVersion: exchange.apiVersion,
        apiName: exchange.apiName,
        correlationId,
        // Called from kafkajs' reading of the socket, which must not see what decoding throws.
        resolve: ({ payload }) => on.answered(payload),
        reject: (error) => on.lost(error),
      },
      expectResponse: exchange.expectResponse ?? true,
      requestTimeout: null,
      sendRequest: () => {
        connection.socket?.write(request);
        on.onSent();
      },
    });
  }

  #encode(exchange: Exchange<unknown>, correlationId: number): Buffer {
    const writer = this.#writer;
    writer.reset();
    writer.int32(0).int16(exchange.apiKey).int16(exchange.apiVersion).int32(correlationId).nullableString(this.#config.clientId);
    if (exchange.flexible) writer.tags();
    exchange.encode(writer);
    writer.patchInt32(0, writer.position - 4);
    // A copy: the socket keeps what it is given until the kernel has taken it.
    return writer.toBuffer();
  }

  #decode<T>(exchange: Exchange<T>, payload: Buffer | null): T {
    const reader = new WireReader(payload ?? Buffer.alloc(0), `${exchange.apiName} v${exchange.apiVersion} answer of broker ${this.name}`);
    if (exchange.expectResponse === false) return undefined as T;
    // ApiVersions answers with header 0 in every version, so that any client can read it (KIP-511).
    if (exchange.flexible && exchange.apiKey !== 18) reader.skipTags('header');
    return exchange.decode(reader);
  }

  #checkVersion(open: OpenConnection, exchange: Exchange<unknown>): void {
    const range = open.broker.versions?.[exchange.apiKey];
    if (range !== undefined && exchange.apiVersion >= range.minVersion && exchange.apiVersion <= range.maxVersion) return;
    const speaks = range === undefined ? 'does not know it' : `speaks versions ${range.minVersion} to ${range.maxVersion}`;
    throw new FatalError(
      `${exchange.apiName} v${exchange.apiVersion} is needed, but broker ${this.name} ${speaks}. Kafka 2.5 or later is needed.`,
    );
  }

  #drop(open: OpenConnection, why: string): void {
    if (this.#open !== open) return;
    this.#open = undefined;
    hangUp(open.connection, new Error(why));
    this.#config.log?.('debug', 'connection to a Kafka broker ended', { broker: this.name, why });
  }

  #unreachable(why: string, cause?: unknown): BrokerUnreachableError {
    return new BrokerUnreachableError(`broker ${this.name}: ${why}`, { cause });
  }
}

/** kafkajs starts a timer after each answer although nothing waits for it; Node 24 warns of its negative delay. */
function quietTimers({ requestQueue }: RawConnection): void {
  const schedule = requestQueue.scheduleCheckPendingRequests.bind(requestQueue);
  requestQueue.scheduleCheckPendingRequests = () => {
    if (requestQueue.pending.length > 0) schedule();
  };
}

function hangUp(connection: RawConnection, error: Error): void {
  connection.requestQueue.rejectAll(error);
  connection.requestQueue.destroy();
  // With an error, because that is what ends kafkajs' own timer for a connection that is still being opened.
  connection.socket?.destroy(error);
}

/** Rejects with `late()` when the promise has not settled in time or the signal fires. Its later outcome is dropped on purpose. */
function within<T>(promise: Promise<T>, timeoutMs: number, late: () => Error, signal?: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const giveUp = (): void => {
      settle();
      reject(late());
    };
    const timer = setTimeout(giveUp, timeoutMs);
    const settle = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', giveUp);
    };
    signal?.addEventListener('abort', giveUp);
    promise.then(resolve, reject).finally(settle);
  });
}
