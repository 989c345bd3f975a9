import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ConfigurationError } from '../model/errors.ts';

export interface HttpOptions {
  /** 0: any free port. */
  readonly port: number;
  /** Default 127.0.0.1: nothing outside of this machine reaches it. */
  readonly host?: string;
}

export interface Health {
  /** Undefined: all is well. Else why this process should be restarted. */
  notLive(): string | undefined;
  /** Undefined: records are processed. Else why not. */
  notReady(): string | undefined;
  metrics(): Promise<string>;
  readonly metricsContentType: string;
}

/** Serves `/livez`, `/readyz` and `/metrics`. */
export class HttpServer {
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  /** Throws ConfigurationError when the port is taken. */
  static async listen(options: HttpOptions, health: Health): Promise<HttpServer> {
    const server = createServer((request, response) => {
      const path = request.url?.split('?', 1)[0] ?? '/';
      if (request.method !== 'GET' && request.method !== 'HEAD') {
        answer(response, 405, 'only GET is served here');
      } else if (path === '/livez') {
        verdict(response, health.notLive());
      } else if (path === '/readyz') {
        verdict(response, health.notReady());
      } else if (path === '/metrics') {
        health.metrics().then(
          (text) => answer(response, 200, text, health.metricsContentType),
          (error: unknown) => answer(response, 500, `the metrics could not be read: ${String(error)}`),
        );
      } else {
        answer(response, 404, 'served here: /livez, /readyz, /metrics');
      }
    });
    server.requestTimeout = 10_000;
    const host = options.host ?? '127.0.0.1';
    await new Promise<void>((resolve, reject) => {
      server.once('error', (cause) => {
        reject(
          new ConfigurationError(`option 'http': cannot listen on ${host}:${options.port} (${cause.message}). Choose another port, or 0.`, {
            cause,
          }),
        );
      });
      server.listen({ port: options.port, host }, resolve);
    });
    // The server alone must not keep the process alive.
    server.unref();
    return new HttpServer(server);
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}

function verdict(response: ServerResponse, complaint: string | undefined): void {
  if (complaint === undefined) answer(response, 200, 'ok');
  else answer(response, 503, complaint);
}

function answer(response: ServerResponse, status: number, text: string, contentType = 'text/plain; charset=utf-8'): void {
  response.writeHead(status, { 'content-type': contentType, 'content-length': Buffer.byteLength(text) }).end(text);
}
