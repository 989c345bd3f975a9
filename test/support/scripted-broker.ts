import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { WireReader } from '../../src/kafka/kafkajs/wire/reader.ts';
import { WireWriter } from '../../src/kafka/kafkajs/wire/writer.ts';

const APIS = {
  Fetch: { key: 1, version: 11 },
  ListOffsets: { key: 2, version: 5 },
  Metadata: { key: 3, version: 7 },
  OffsetCommit: { key: 8, version: 7 },
  FindCoordinator: { key: 10, version: 2 },
  JoinGroup: { key: 11, version: 5 },
  Heartbeat: { key: 12, version: 3 },
  LeaveGroup: { key: 13, version: 3 },
  SyncGroup: { key: 14, version: 3 },
} as const;
const API_VERSIONS = 18;
const NODE_ID = 1;

export type Api = keyof typeof APIS;

/** Writes the body of an answer. May wait; `SILENCE` leaves the request without an answer. */
export type Script = (request: WireReader, answer: WireWriter) => void | typeof SILENCE | Promise<void | typeof SILENCE>;

export const SILENCE = Symbol('no answer');

/**
 * One broker that answers as a test tells it to, for what a real one cannot be made to do at the right moment. Works on the requests of one
 * connection one after the other, as brokers do.
 */
export class ScriptedBroker {
  readonly topics = new Map<string, number>();
  /** By api, how many requests have come. */
  readonly seen = new Map<Api, number>();
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #scripts = new Map<Api, Script>();

  private constructor(server: Server) {
    this.#server = server;
    server.on('connection', (socket) => this.#serve(socket));
    this.script('Metadata', (request, answer) => this.#metadata(request, answer));
    this.script('FindCoordinator', (_, answer) => {
      answer.int32(0).int16(0).nullableString(null).int32(NODE_ID).string('127.0.0.1').int32(this.#port);
    });
  }

  static async start(): Promise<ScriptedBroker> {
    const server = createServer();
    await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, '127.0.0.1', resolve));
    return new ScriptedBroker(server);
  }

  get address(): string {
    return `127.0.0.1:${this.#port}`;
  }

  script(api: Api, script: Script): void {
    this.#scripts.set(api, script);
  }

  count(api: Api): number {
    return this.seen.get(api) ?? 0;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  get #port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    let bytes = Buffer.alloc(0);
    let turn = Promise.resolve();
    socket.on('error', () => undefined);
    socket.on('close', () => this.#sockets.delete(socket));
    socket.on('data', (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk]);
      while (bytes.length >= 4 && bytes.length >= 4 + bytes.readInt32BE(0)) {
        const frame = bytes.subarray(4, 4 + bytes.readInt32BE(0));
        bytes = bytes.subarray(4 + frame.length);
        turn = turn.then(() => this.#answer(frame, socket)).catch(() => void socket.destroy());
      }
    });
  }

  async #answer(frame: Buffer, socket: Socket): Promise<void> {
    const request = new WireReader(frame, 'request');
    const apiKey = request.int16();
    request.int16();
    const answer = new WireWriter();
    answer.int32(0).int32(request.int32());
    request.nullableString();
    if (apiKey === API_VERSIONS) {
      answer
        .int16(0)
        .array(Object.values(APIS), (w, { key, version }) => w.int16(key).int16(version).int16(version))
        .int32(0);
    } else {
      const [api] = (Object.keys(APIS) as Api[]).filter((name) => APIS[name].key === apiKey);
      if (api === undefined) throw new Error(`unexpected api ${apiKey}`);
      this.seen.set(api, this.count(api) + 1);
      const script = this.#scripts.get(api);
      if (script === undefined) throw new Error(`${api} has no script`);
      if ((await script(request, answer)) === SILENCE) return;
    }
    answer.patchInt32(0, answer.position - 4);
    if (!socket.destroyed) socket.write(answer.toBuffer());
  }

  #metadata(request: WireReader, answer: WireWriter): void {
    const asked = request.array((r) => r.string());
    answer.int32(0);
    answer.array([NODE_ID], (w, id) => w.int32(id).string('127.0.0.1').int32(this.#port).nullableString(null));
    answer.nullableString('scripted').int32(NODE_ID);
    answer.array(asked, (w, topic) => {
      const partitions = this.topics.get(topic);
      w.int16(partitions === undefined ? 3 : 0)
        .string(topic)
        .boolean(false);
      w.array(
        Array.from({ length: partitions ?? 0 }, (_, i) => i),
        (each, partition) => {
          each.int16(0).int32(partition).int32(NODE_ID).int32(5);
          each
            .array([NODE_ID], (r, id) => r.int32(id))
            .array([NODE_ID], (r, id) => r.int32(id))
            .array([], () => undefined);
        },
      );
    });
  }
}
