import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { ErrorCode } from '../../../src/kafka/kafkajs/wire/error-code.ts';
import { findCoordinatorExchange } from '../../../src/kafka/kafkajs/wire/find-coordinator.ts';
import { metadataExchange } from '../../../src/kafka/kafkajs/wire/metadata.ts';
import { WireReader } from '../../../src/kafka/kafkajs/wire/reader.ts';
import { WireWriter } from '../../../src/kafka/kafkajs/wire/writer.ts';
import { FaultProxy } from '../../support/fault-proxy.ts';

const END_TXN = 26;
const HEARTBEAT = 12;

/** A server that records what reaches it and answers as `answer` says. */
class FakeServer {
  readonly received: Buffer[] = [];
  readonly server: Server;
  readonly #sockets = new Set<Socket>();

  constructor(answer: (frame: Buffer) => Buffer | undefined, frameLength: (buffered: Buffer) => number) {
    this.server = createServer((socket) => {
      this.#sockets.add(socket);
      let buffered: Buffer = Buffer.alloc(0);
      socket.on('error', () => undefined);
      socket.on('data', (chunk: Buffer) => {
        buffered = Buffer.concat([buffered, chunk]);
        for (;;) {
          const length = frameLength(buffered);
          if (length === 0 || buffered.length < length) return;
          const frame = Buffer.from(buffered.subarray(0, length));
          buffered = buffered.subarray(length);
          this.received.push(frame);
          const reply = answer(frame);
          if (reply !== undefined) socket.write(reply);
        }
      });
    });
  }

  async start(): Promise<number> {
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    return (this.server.address() as AddressInfo).port;
  }

  close(): void {
    this.server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}

/** A client that collects what comes back. */
class RawClient {
  readonly socket: Socket;
  received: Buffer = Buffer.alloc(0);
  closed = false;

  constructor(port: number) {
    this.socket = connect(port, '127.0.0.1');
    this.socket.on('data', (chunk: Buffer) => {
      this.received = Buffer.concat([this.received, chunk]);
    });
    this.socket.on('error', () => undefined);
    this.socket.on('close', () => {
      this.closed = true;
    });
  }
}

async function until(condition: () => boolean, what: string): Promise<void> {
  await expect.poll(condition, { timeout: 5_000, interval: 5, message: what }).toBe(true);
}

function kafkaFrame(
  apiKey: number,
  apiVersion: number,
  correlationId: number,
  body: Uint8Array = Buffer.alloc(0),
  flexible = false,
): Buffer {
  const writer = new WireWriter();
  writer.int32(0).int16(apiKey).int16(apiVersion).int32(correlationId).nullableString('client-a');
  if (flexible) writer.tags();
  writer.raw(body);
  return writer.patchInt32(0, writer.position - 4).toBuffer();
}

function kafkaAnswer(correlationId: number, body: Uint8Array): Buffer {
  const writer = new WireWriter();
  writer.int32(0).int32(correlationId).raw(body);
  return writer.patchInt32(0, writer.position - 4).toBuffer();
}

function correlationIds(bytes: Buffer): number[] {
  const ids: number[] = [];
  for (let at = 0; at + 8 <= bytes.length; at += 4 + bytes.readInt32BE(at)) ids.push(bytes.readInt32BE(at + 4));
  return ids;
}

const kafkaLength = (buffered: Buffer): number => (buffered.length < 4 ? 0 : 4 + buffered.readInt32BE(0));
const postgresLength = (buffered: Buffer): number => (buffered.length < 5 ? 0 : 1 + buffered.readInt32BE(1));

const open: { close(): unknown }[] = [];
afterEach(async () => {
  for (const each of open.splice(0).toReversed()) await each.close();
});

async function kafka(body: (frame: Buffer) => Uint8Array = () => Buffer.from('ok')): Promise<{ server: FakeServer; proxy: FaultProxy }> {
  const server = new FakeServer((frame) => kafkaAnswer(frame.readInt32BE(8), body(frame)), kafkaLength);
  open.push(server);
  const proxy = await FaultProxy.kafka(`127.0.0.1:${await server.start()}`);
  open.push(proxy);
  return { server, proxy };
}

function client(proxy: FaultProxy): RawClient {
  const raw = new RawClient(proxy.port);
  open.push({ close: () => raw.socket.destroy() });
  return raw;
}

describe('FaultProxy in front of Kafka', () => {
  it('passes frames on whole, however they are cut', async () => {
    const { server, proxy } = await kafka();
    const raw = client(proxy);
    const bytes = Buffer.concat([kafkaFrame(HEARTBEAT, 0, 1), kafkaFrame(HEARTBEAT, 0, 2)]);
    for (const byte of bytes) raw.socket.write(Buffer.from([byte]));
    await until(() => correlationIds(raw.received).length === 2, 'both answers');
    expect(correlationIds(raw.received)).toEqual([1, 2]);
    expect(server.received).toHaveLength(2);
    expect(proxy.requests('Heartbeat')).toBe(2);
  });

  it('closeBefore: the server never sees the request', async () => {
    const { server, proxy } = await kafka();
    const rule = proxy.addRule({ api: 'EndTxn', action: 'closeBefore', nth: 2 });
    const raw = client(proxy);
    raw.socket.write(kafkaFrame(END_TXN, 1, 1));
    raw.socket.write(kafkaFrame(END_TXN, 1, 2));
    await until(() => raw.closed, 'the connection to be closed');
    expect(server.received.map((frame) => frame.readInt32BE(8))).toEqual([1]);
    expect(rule).toMatchObject({ seen: 2, fired: 1 });
  });

  it('closeOnForward: the server gets the request whole, the client no answer', async () => {
    const { server, proxy } = await kafka();
    proxy.addRule({ api: 'EndTxn', action: 'closeOnForward' });
    const raw = client(proxy);
    const body = Buffer.alloc(300_000, 7);
    raw.socket.write(kafkaFrame(END_TXN, 1, 1, body));
    await until(() => raw.closed && server.received.length === 1, 'the request to arrive and the connection to be closed');
    expect(server.received[0]?.subarray(-body.length).equals(body)).toBe(true);
    expect(raw.received).toHaveLength(0);
  });

  it('closeAfter: executed, and the client never learns of it', async () => {
    const { server, proxy } = await kafka();
    proxy.addRule({ api: 'EndTxn', action: 'closeAfter' });
    const raw = client(proxy);
    raw.socket.write(kafkaFrame(END_TXN, 1, 1));
    await until(() => raw.closed, 'the connection to be closed');
    expect(server.received).toHaveLength(1);
    expect(raw.received).toHaveLength(0);
  });

  it('dropResponse and dropRequest leave the connection and the other requests alone', async () => {
    const { server, proxy } = await kafka();
    proxy.addRule({ api: 'EndTxn', action: 'dropResponse', contains: 'lost-answer' });
    proxy.addRule({ api: 'EndTxn', action: 'dropRequest', contains: 'lost-request' });
    const raw = client(proxy);
    raw.socket.write(kafkaFrame(END_TXN, 1, 1, Buffer.from('lost-answer')));
    raw.socket.write(kafkaFrame(END_TXN, 1, 2, Buffer.from('lost-request')));
    raw.socket.write(kafkaFrame(END_TXN, 1, 3, Buffer.from('fine')));
    await until(() => correlationIds(raw.received).length === 1, 'the third answer');
    expect(correlationIds(raw.received)).toEqual([3]);
    expect(server.received.map((frame) => frame.readInt32BE(8))).toEqual([1, 3]);
    expect(raw.closed).toBe(false);
  });

  it('answerError: the client gets the code, the server nothing, for a plain and a flexible version', async () => {
    const { server, proxy } = await kafka();
    proxy.addRule({ api: 'EndTxn', action: 'answerError', errorCode: ErrorCode.CONCURRENT_TRANSACTIONS, times: 2 });
    const raw = client(proxy);
    raw.socket.write(kafkaFrame(END_TXN, 1, 1));
    raw.socket.write(kafkaFrame(END_TXN, 3, 2, Buffer.alloc(0), true));
    await until(() => correlationIds(raw.received).length === 2, 'both answers');
    const reader = new WireReader(raw.received, 'answers');
    for (const flexible of [false, true]) {
      reader.int32();
      reader.int32();
      if (flexible) reader.skipTags();
      reader.int32();
      expect(reader.int16()).toBe(ErrorCode.CONCURRENT_TRANSACTIONS);
      if (flexible) reader.skipTags();
    }
    expect(reader.remaining).toBe(0);
    expect(server.received).toHaveLength(0);
  });

  it('answerError for Produce names each partition of the request', async () => {
    const { proxy } = await kafka();
    proxy.addRule({ api: 'Produce', action: 'answerError', errorCode: ErrorCode.NOT_LEADER_OR_FOLLOWER });
    const body = new WireWriter();
    body.nullableString(null).int16(-1).int32(1000);
    body.array(['a', 'b'], (w, topic) =>
      w.string(topic).array([0, 3], (each, partition) => each.int32(partition).bytes(Buffer.from('batch'))),
    );
    const raw = client(proxy);
    raw.socket.write(kafkaFrame(0, 7, 1, body.toBuffer()));
    await until(() => raw.received.length > 4, 'the answer');
    const reader = new WireReader(raw.received.subarray(8), 'Produce v7 answer');
    const answered = reader.array((r) => {
      const topic = r.string();
      return r.array((p) => {
        const partition = p.int32();
        const code = p.int16();
        p.raw(24);
        return `${topic}/${partition}:${code}`;
      });
    });
    expect(answered.flat()).toEqual(['a/0:6', 'a/3:6', 'b/0:6', 'b/3:6']);
    expect(reader.int32()).toBe(0);
    expect(reader.remaining).toBe(0);
  });

  it('stands in for the brokers that Metadata and FindCoordinator name', async () => {
    const other = new FakeServer((frame) => kafkaAnswer(frame.readInt32BE(8), Buffer.from('other')), kafkaLength);
    open.push(other);
    const otherPort = await other.start();
    const { proxy } = await kafka((frame) => {
      const writer = new WireWriter();
      if (frame.readInt16BE(4) === 3) {
        writer.int32(0).array([0], (w) => w.int32(9).string('127.0.0.1').int32(otherPort).nullableString('rack-a'));
        writer
          .nullableString('cluster')
          .int32(9)
          .array([], () => {});
      } else writer.int32(0).int16(0).nullableString(null).int32(9).string('127.0.0.1').int32(otherPort);
      return writer.toBuffer();
    });
    const raw = client(proxy);
    raw.socket.write(kafkaFrame(3, 7, 1));
    await until(() => raw.received.length > 4, 'the metadata');
    const metadata = metadataExchange('all').decode(new WireReader(raw.received.subarray(8), 'Metadata'));
    expect(metadata).toMatchObject({ controllerId: 9, brokers: [{ nodeId: 9, host: '127.0.0.1', rack: 'rack-a' }] });
    const port = metadata.brokers[0]?.port ?? 0;
    expect(port).not.toBe(otherPort);

    raw.received = Buffer.alloc(0);
    raw.socket.write(kafkaFrame(10, 2, 2));
    await until(() => raw.received.length > 4, 'the coordinator');
    expect(findCoordinatorExchange('group', 'g').decode(new WireReader(raw.received.subarray(8), 'FindCoordinator'))).toMatchObject({
      port,
    });

    const second = new RawClient(port);
    open.push({ close: () => second.socket.destroy() });
    second.socket.write(kafkaFrame(HEARTBEAT, 0, 5));
    await until(() => second.received.length > 0, 'the answer of the other broker');
    expect(second.received.toString('latin1')).toContain('other');
  });

  it('refuse closes connections and new ones until resume; pause holds them', async () => {
    const { proxy } = await kafka();
    const first = client(proxy);
    first.socket.write(kafkaFrame(HEARTBEAT, 0, 1));
    await until(() => first.received.length > 0, 'an answer');
    proxy.refuse();
    const second = client(proxy);
    await until(() => first.closed && second.closed, 'both to be closed');
    proxy.resume();
    proxy.pause();
    const third = client(proxy);
    third.socket.write(kafkaFrame(HEARTBEAT, 0, 1));
    await until(() => proxy.connections === 1, 'the connection');
    expect(third.received).toHaveLength(0);
    proxy.resume();
    await until(() => third.received.length > 0, 'the answer after the pause');
  });
});

describe('FaultProxy in front of Postgres', () => {
  const message = (type: string, body: string): Buffer => {
    const bytes = Buffer.alloc(5 + Buffer.byteLength(body));
    bytes.write(type, 0, 'latin1');
    bytes.writeInt32BE(bytes.length - 1, 1);
    bytes.write(body, 5, 'latin1');
    return bytes;
  };
  const startUp = Buffer.from([0, 0, 0, 9, 0, 3, 0, 0, 0]);
  const done = Buffer.concat([message('C', 'DONE\0'), message('Z', 'I')]);

  async function postgres(): Promise<{ statements: string[]; proxy: FaultProxy }> {
    const statements: string[] = [];
    let started = false;
    const server = new FakeServer(
      (frame) => {
        if (!started) {
          started = true;
          return message('Z', 'I');
        }
        statements.push(frame.toString('latin1'));
        return frame[0] === 0x51 || frame[0] === 0x53 ? done : undefined;
      },
      (buffered) => (started ? postgresLength(buffered) : buffered.length < 4 ? 0 : buffered.readInt32BE(0)),
    );
    open.push(server);
    const proxy = await FaultProxy.postgres('127.0.0.1', await server.start());
    open.push(proxy);
    return { statements, proxy };
  }

  it('loses the answer of COMMIT alone, after it was executed', async () => {
    const { statements, proxy } = await postgres();
    const rule = proxy.addRule({ query: /^\s*commit/i, action: 'closeAfter' });
    const raw = client(proxy);
    raw.socket.write(startUp);
    raw.socket.write(message('Q', 'insert into t values (1)\0'));
    await until(() => raw.received.toString('latin1').includes('DONE'), 'the answer of the insert');
    const before = raw.received.length;
    raw.socket.write(message('Q', 'COMMIT\0'));
    await until(() => raw.closed, 'the connection to be closed');
    expect(statements.some((each) => each.includes('COMMIT'))).toBe(true);
    expect(raw.received).toHaveLength(before);
    expect(rule.fired).toBe(1);
    expect(proxy.requests('COMMIT')).toBe(1);
  });

  it('finds the statement of an Execute through its portal', async () => {
    const { statements, proxy } = await postgres();
    proxy.addRule({ query: /^select 2/, action: 'closeBefore' });
    const raw = client(proxy);
    raw.socket.write(startUp);
    const execute = (text: string): Buffer =>
      Buffer.concat([message('P', `\0${text}\0\0\0`), message('B', '\0\0\0\0\0\0\0\0'), message('E', '\0\0\0\0\0'), message('S', '')]);
    raw.socket.write(execute('select 1'));
    await until(() => raw.received.toString('latin1').includes('DONE'), 'the first answer');
    raw.socket.write(execute('select 2'));
    await until(() => raw.closed, 'the connection to be closed');
    expect(statements.filter((each) => each.startsWith('E'))).toHaveLength(1);
  });

  it('declines TLS, and hands a forwarded COMMIT to the server before it closes', async () => {
    const { statements, proxy } = await postgres();
    proxy.addRule({ query: /^commit/i, action: 'closeOnForward' });
    const raw = client(proxy);
    raw.socket.write(Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]));
    await until(() => raw.received.toString('latin1') === 'N', 'the refusal of TLS');
    raw.socket.write(startUp);
    raw.socket.write(message('Q', 'commit\0'));
    await until(() => raw.closed, 'the connection to be closed');
    await expect.poll(() => statements).toEqual([expect.stringContaining('commit')]);
  });
});
