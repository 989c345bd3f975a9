import { setTimeout as sleep } from 'node:timers/promises';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { RuleBook, type ArmedRule, type FaultRule } from './fault-rule.ts';
import { parseRequest, refuse, rewriteAddresses, type KafkaRequest } from './kafka-fault.ts';
import { postgresHandlers } from './postgres-fault.ts';
import { frames, ProxiedConnection, type Handler, type Traffic } from './proxied-connection.ts';

interface Handlers {
  readonly request: Handler;
  readonly response: Handler;
}

/**
 * Stands between a client and a Kafka cluster or a Postgres server, understands where one request ends and the next begins, and makes a
 * fault hit exactly one of them. In front of Kafka it replaces the addresses in the brokers' answers, so that a client never goes round it;
 * brokers that it learns of get a port of their own. No TLS, loopback only.
 */
export class FaultProxy {
  readonly #kind: 'kafka' | 'postgres';
  readonly #rules = new RuleBook();
  readonly #traffic: Traffic = { paused: undefined, latencyMs: 0 };
  readonly #servers: Server[] = [];
  /** Upstream `host:port` to the port that stands in for it. */
  readonly #ports = new Map<string, Promise<number>>();
  readonly #connections = new Set<ProxiedConnection>();
  readonly #requests = new Map<string, number>();
  #address = '';
  #refusing = false;
  #resume: () => void = () => {};

  private constructor(kind: 'kafka' | 'postgres') {
    this.#kind = kind;
  }

  /** `broker`: `host:port` of one broker of the cluster. */
  static async kafka(broker: string): Promise<FaultProxy> {
    const [host = '', port] = broker.split(':');
    return FaultProxy.#start('kafka', host, Number(port));
  }

  static postgres(host: string, port: number): Promise<FaultProxy> {
    return FaultProxy.#start('postgres', host, port);
  }

  static async #start(kind: 'kafka' | 'postgres', host: string, port: number): Promise<FaultProxy> {
    const proxy = new FaultProxy(kind);
    proxy.#address = `127.0.0.1:${await proxy.#portFor(host, port)}`;
    return proxy;
  }

  /** `host:port` for the client. */
  get address(): string {
    return this.#address;
  }

  get port(): number {
    return Number(this.#address.split(':')[1]);
  }

  get connections(): number {
    return this.#connections.size;
  }

  /** How many requests of this api (Kafka) or with this first word (Postgres, upper case) have come by. */
  requests(name: string): number {
    return this.#requests.get(name) ?? 0;
  }

  addRule(rule: FaultRule): ArmedRule {
    return this.#rules.add(rule);
  }

  removeRule(rule: ArmedRule): void {
    this.#rules.remove(rule);
  }

  clearRules(): void {
    this.#rules.clear();
  }

  /** Holds all traffic, without closing anything, until `resume`. */
  pause(): void {
    this.#traffic.paused ??= new Promise((resolve) => {
      this.#resume = resolve;
    });
  }

  /** Ends `pause` and `refuse`. */
  resume(): void {
    this.#refusing = false;
    this.#traffic.paused = undefined;
    this.#resume();
  }

  /** Closes every connection, and each new one at once, until `resume`. */
  refuse(): void {
    this.#refusing = true;
    this.dropConnections();
  }

  dropConnections(): void {
    for (const connection of this.#connections) connection.close();
  }

  /** Delays every chunk in both directions. */
  set latencyMs(value: number) {
    this.#traffic.latencyMs = value;
  }

  async close(): Promise<void> {
    this.resume();
    this.#refusing = true;
    this.dropConnections();
    await Promise.all(this.#servers.map((server) => new Promise((resolve) => server.close(resolve))));
  }

  #portFor(host: string, port: number): Promise<number> {
    const key = `${host}:${port}`;
    let found = this.#ports.get(key);
    if (found === undefined) {
      found = this.#listen(host, port);
      this.#ports.set(key, found);
    }
    return found;
  }

  async #listen(host: string, port: number): Promise<number> {
    const server = createServer({ noDelay: true }, (client) => this.#accept(client, host, port));
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(0, '127.0.0.1', resolve);
    });
    this.#servers.push(server);
    return (server.address() as AddressInfo).port;
  }

  #accept(client: Socket, host: string, port: number): void {
    if (this.#refusing) {
      client.destroy();
      return;
    }
    const upstream = connect({ host, port, noDelay: true });
    const connection = new ProxiedConnection(client, upstream, this.#traffic, (closed) => this.#connections.delete(closed));
    this.#connections.add(connection);
    const { request, response } =
      this.#kind === 'kafka'
        ? this.#kafkaHandlers(connection, `${host}:${port}`)
        : postgresHandlers(connection, `${host}:${port}`, this.#rules, (word) => this.#count(word));
    connection.run(request, response);
  }

  #count(name: string): void {
    this.#requests.set(name, this.requests(name) + 1);
  }

  #kafkaHandlers(connection: ProxiedConnection, name: string): Handlers {
    const { client, server } = connection;
    const expected = new Map<number, { request: KafkaRequest; rule: FaultRule | undefined }>();
    const frameLength = (buffered: Buffer): number => (buffered.length < 4 ? 0 : 4 + buffered.readInt32BE(0));
    const request = frames(frameLength, async (frame) => {
      const parsed = parseRequest(frame);
      this.#count(parsed.api);
      const rule = this.#rules.match({ api: parsed.api, server: name, clientId: parsed.clientId, frame });
      switch (rule?.action) {
        case 'closeBefore':
          await connection.writeLast();
          return false;
        case 'closeOnForward':
          await connection.writeLast(frame);
          return false;
        case 'dropRequest':
          return true;
        case 'answerError':
          await rule.until;
          await connection.write(client, refuse(parsed, rule.errorCode ?? -1));
          return true;
        case 'delayRequest':
          await sleep(rule.ms ?? 1000);
          break;
        case 'closeAfter':
        case 'dropResponse':
        case 'delayResponse':
        case 'count':
        case undefined:
          if (rule !== undefined || parsed.api === 'Metadata' || parsed.api === 'FindCoordinator') {
            expected.set(parsed.correlationId, { request: parsed, rule });
          }
      }
      await connection.write(server, frame);
      return true;
    });
    const response = frames(frameLength, async (frame) => {
      const correlationId = frame.readInt32BE(4);
      const found = expected.get(correlationId);
      expected.delete(correlationId);
      const action = found?.rule?.action;
      if (action === 'dropResponse') return true;
      if (action === 'closeAfter') {
        connection.close();
        return false;
      }
      if (action === 'delayResponse') await sleep(found?.rule?.ms ?? 1000);
      const rewritten =
        found === undefined
          ? undefined
          : await rewriteAddresses(found.request, frame, async (host, port) => ({
              host: '127.0.0.1',
              port: await this.#portFor(host, port),
            }));
      await connection.write(client, rewritten ?? frame);
      return true;
    });
    return { request, response };
  }
}
