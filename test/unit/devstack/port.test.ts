import { createServer } from 'node:net';
import { describe, expect, it } from 'vitest';
import { freePorts, isFree } from '../../../src/devstack/port.ts';

describe('free ports', () => {
  it('are different, and none that an outgoing connection may be given', async () => {
    const ports = await freePorts(20);
    expect(new Set(ports).size).toBe(20);
    expect(Math.max(...ports)).toBeLessThan(32_768);
  });

  it('are not free while something listens', async () => {
    const [port] = (await freePorts(1)) as [number];
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
    expect(await isFree(port)).toBe(false);
    await new Promise((resolve) => server.close(resolve));
    expect(await isFree(port)).toBe(true);
  });
});
