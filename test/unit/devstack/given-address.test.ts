import { createServer } from 'node:net';
import { describe, expect, it } from 'vitest';
import { checkGivenAddress, givenAddress, withoutPassword } from '../../../src/devstack/given-address.ts';
import { freePort } from '../../../src/devstack/port.ts';

describe('a given address', () => {
  it('is none where the variable is empty', () => {
    expect(givenAddress('kafka', { TIDEMARK_KAFKA_BROKERS: '  ' })).toBeUndefined();
    expect(givenAddress('postgres', { DATABASE_URL: 'postgres://a' })).toBe('postgres://a');
  });

  it('is good if one of several brokers answers', async () => {
    const server = createServer();
    const port = await freePort();
    await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
    await expect(checkGivenAddress('kafka', `127.0.0.1:1, 127.0.0.1:${port}`, 5_000)).resolves.toBeUndefined();
    await new Promise((resolve) => server.close(resolve));
  });

  it('is an error, without the password, where nothing answers', async () => {
    const check = checkGivenAddress('postgres', 'postgres://me:secret@127.0.0.1:1/db', 5_000);
    await expect(check).rejects.toThrow('DATABASE_URL=postgres://me:***@127.0.0.1:1/db');
  });

  it('is an error that shows the form where it is malformed', async () => {
    await expect(checkGivenAddress('kafka', 'localhost', 1_000)).rejects.toThrow(/HOST:PORT/);
    await expect(checkGivenAddress('registry', 'not a url', 1_000)).rejects.toThrow(/SCHEMA_REGISTRY_URL is not a URL/);
  });

  it('is shown without its password', () => {
    expect(withoutPassword('postgres://u:p:w@h/d')).toBe('postgres://u:***@h/d');
    expect(withoutPassword('127.0.0.1:9092')).toBe('127.0.0.1:9092');
  });
});
