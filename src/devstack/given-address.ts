import { connect } from 'node:net';
import type { ServiceName } from './stack-state.ts';
import { StackError } from './stack-error.ts';

/** The variables by which addresses are given; the first one that is set counts. */
export const addressVariables: Readonly<Record<ServiceName, string>> = {
  kafka: 'TIDEMARK_KAFKA_BROKERS',
  postgres: 'DATABASE_URL',
  registry: 'SCHEMA_REGISTRY_URL',
};

export function givenAddress(name: ServiceName, variables: NodeJS.ProcessEnv): string | undefined {
  const value = variables[addressVariables[name]]?.trim();
  return value === undefined || value === '' ? undefined : value;
}

/**
 * Throws if nothing listens at a given address within `deadlineMs`. An address that was given is never replaced by something else: whoever
 * gave it means that server.
 */
export async function checkGivenAddress(name: ServiceName, address: string, deadlineMs: number): Promise<void> {
  const endpoints = name === 'kafka' ? address.split(',').map(brokerEndpoint) : [urlEndpoint(name, address)];
  const results = await Promise.all(endpoints.map(async (endpoint) => await reach(endpoint, deadlineMs)));
  if (results.some((error) => error === undefined)) return;
  throw new StackError(
    `Nothing answers at ${addressVariables[name]}=${withoutPassword(address)} (${results.join(', ')}). Start it, or unset ${addressVariables[name]}.`,
  );
}

/** For messages and logs. */
export function withoutPassword(address: string): string {
  return address.replace(/(:\/\/[^:@/]*):[^@/]*@/, '$1:***@');
}

interface Endpoint {
  readonly host: string;
  readonly port: number;
}

function brokerEndpoint(broker: string): Endpoint {
  const match = /^\s*(?:\[([^\]]+)\]|([^:\s]+)):(\d+)\s*$/.exec(broker);
  const host = match?.[1] ?? match?.[2];
  if (host === undefined)
    throw new StackError(`TIDEMARK_KAFKA_BROKERS holds "${broker}", but a broker is written HOST:PORT; several are separated by commas.`);
  return { host, port: Number(match?.[3]) };
}

function urlEndpoint(name: ServiceName, address: string): Endpoint {
  let url: URL;
  try {
    url = new URL(address);
  } catch (error) {
    throw new StackError(`${addressVariables[name]} is not a URL.`, { cause: error });
  }
  const usual = name === 'postgres' ? 5432 : url.protocol === 'https:' ? 443 : 80;
  return {
    host: url.hostname === '' ? '127.0.0.1' : url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? usual : Number(url.port),
  };
}

/** Undefined if it can be connected to, else why not. */
async function reach(endpoint: Endpoint, deadlineMs: number): Promise<string | undefined> {
  return await new Promise((resolve) => {
    const socket = connect(endpoint);
    const end = (result: string | undefined): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(result);
    };
    const timer = setTimeout(() => end(`no answer within ${deadlineMs / 1000} s`), deadlineMs);
    socket.once('connect', () => end(undefined));
    socket.once('error', (error: NodeJS.ErrnoException) => end(error.code ?? error.message));
  });
}
