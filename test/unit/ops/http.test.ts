import { afterEach, describe, expect, it } from 'vitest';
import { ConfigurationError } from '../../../src/model/errors.ts';
import { type Health, HttpServer } from '../../../src/ops/http.ts';

const servers: HttpServer[] = [];

afterEach(async () => {
  await Promise.all(servers.splice(0).map(async (server) => server.close()));
});

async function serve(health: Partial<Health> = {}): Promise<(path: string, method?: string) => Promise<{ status: number; text: string }>> {
  const server = await HttpServer.listen(
    { port: 0 },
    { notLive: () => undefined, notReady: () => undefined, metrics: async () => 'm 1', metricsContentType: 'text/plain', ...health },
  );
  servers.push(server);
  return async (path, method = 'GET') => {
    const response = await fetch(`http://127.0.0.1:${server.port}${path}`, { method });
    return { status: response.status, text: await response.text() };
  };
}

describe('HttpServer', () => {
  it('says that all is well', async () => {
    const get = await serve();
    expect(await get('/livez')).toEqual({ status: 200, text: 'ok' });
    expect(await get('/readyz?verbose')).toEqual({ status: 200, text: 'ok' });
    expect(await get('/metrics')).toEqual({ status: 200, text: 'm 1' });
  });

  it('says why not', async () => {
    const get = await serve({
      notLive: () => 'no poll for 400 s',
      notReady: () => 'rebalancing',
      metrics: async () => Promise.reject(new Error('x')),
    });
    expect(await get('/livez')).toEqual({ status: 503, text: 'no poll for 400 s' });
    expect(await get('/readyz')).toEqual({ status: 503, text: 'rebalancing' });
    expect((await get('/metrics')).status).toBe(500);
    expect((await get('/else')).status).toBe(404);
    expect((await get('/livez', 'POST')).status).toBe(405);
  });

  it('a port that is taken is an error of the option', async () => {
    await serve();
    const port = servers[0]!.port;
    const listening = HttpServer.listen(
      { port },
      { notLive: () => undefined, notReady: () => undefined, metrics: async () => '', metricsContentType: '' },
    );
    await expect(listening).rejects.toThrow(ConfigurationError);
  });
});
