import { setTimeout as sleep } from 'node:timers/promises';
import type { Socket } from 'node:net';

/** What holds for all traffic through a proxy. */
export interface Traffic {
  /** Pending while the proxy is paused. */
  paused: Promise<void> | undefined;
  latencyMs: number;
}

/** Handles one chunk or frame. Order is kept: the next one is read when this one is done. `false` ends the reading. */
export type Handler = (bytes: Buffer) => Promise<boolean | void>;

/** A client's connection and the one to the server behind it. They end together. */
export class ProxiedConnection {
  readonly client: Socket;
  readonly server: Socket;
  readonly #traffic: Traffic;
  readonly #onClose: (connection: ProxiedConnection) => void;
  /** The server's answers are thrown away. */
  muted = false;
  closed = false;

  constructor(client: Socket, server: Socket, traffic: Traffic, onClose: (connection: ProxiedConnection) => void) {
    this.client = client;
    this.server = server;
    this.#traffic = traffic;
    this.#onClose = onClose;
    for (const socket of [client, server]) {
      socket.on('error', () => this.close());
      socket.on('close', () => {
        if (socket === this.server || !this.muted) this.close();
      });
    }
  }

  run(request: Handler, response: Handler): void {
    void this.#pump(this.client, request, false);
    void this.#pump(this.server, response, true);
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.#onClose(this);
    this.client.destroy();
    this.server.destroy();
  }

  /** Resolves when the socket takes more; at once for a destroyed one. */
  async write(socket: Socket, bytes: Buffer): Promise<void> {
    if (socket.destroyed || socket.write(bytes)) return;
    await new Promise<void>((resolve) => {
      const go = (): void => {
        socket.off('drain', go);
        socket.off('close', go);
        resolve();
      };
      socket.on('drain', go);
      socket.on('close', go);
    });
  }

  /**
   * Hands what was forwarded, and this last request if there is one, to the server and closes the client. The server's side is read until the server closes it: closing it with an
   * answer unread would reset the connection, and the request could be lost with it.
   */
  async writeLast(bytes: Buffer = Buffer.alloc(0)): Promise<void> {
    this.muted = true;
    await new Promise<void>((resolve) => this.server.end(bytes, resolve));
    this.client.destroy();
  }

  async #pump(socket: Socket, handle: Handler, fromServer: boolean): Promise<void> {
    try {
      for await (const chunk of socket) {
        if (this.#traffic.paused !== undefined) await this.#traffic.paused;
        if (this.#traffic.latencyMs > 0) await sleep(this.#traffic.latencyMs);
        if (fromServer && this.muted) continue;
        if ((await handle(chunk as Buffer)) === false || this.closed) return;
      }
    } catch {
      // A socket that breaks ends the iteration with its error; 'close' has ended the connection then.
    }
    if (!this.muted) this.close();
  }
}

/** Cuts a stream into frames. `frameLength` gives the whole length of the first frame, 0 while it is not known. */
export function frames(frameLength: (buffered: Buffer) => number, handle: Handler): Handler {
  let buffered: Buffer = Buffer.alloc(0);
  return async (chunk) => {
    buffered = buffered.length > 0 ? Buffer.concat([buffered, chunk]) : chunk;
    for (;;) {
      const length = frameLength(buffered);
      if (length === 0 || buffered.length < length) return true;
      const frame = buffered.subarray(0, length);
      buffered = buffered.subarray(length);
      if ((await handle(frame)) === false) return false;
    }
  };
}
