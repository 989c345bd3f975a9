import { ConfigurationError } from '../../model/errors.ts';
import type { FetchOptions, Isolation } from '../port.ts';
import { milliseconds } from './config.ts';

/** `FetchOptions` with every default filled in. */
export interface FetchSettings {
  readonly maxWaitMs: number;
  readonly maxBytes: number;
  readonly maxPartitionBytes: number;
  readonly maxBufferedBytes: number;
  readonly isolation: Isolation;
}

const MIB = 1024 * 1024;

/** Throws ConfigurationError that names the option. */
export function fetchSettings(options: FetchOptions = {}): FetchSettings {
  return {
    maxWaitMs: Math.ceil(milliseconds('fetch.maxWaitMs', options.maxWaitMs, 500)),
    maxBytes: bytes('fetch.maxBytes', options.maxBytes, 10 * MIB),
    maxPartitionBytes: bytes('fetch.maxPartitionBytes', options.maxPartitionBytes, MIB / 4),
    maxBufferedBytes: bytes('fetch.maxBufferedBytes', options.maxBufferedBytes, 32 * MIB),
    isolation: options.isolation ?? 'read-committed',
  };
}

function bytes(option: string, value: number | undefined, defaultBytes: number): number {
  if (value === undefined) return defaultBytes;
  if (Number.isInteger(value) && value > 0 && value <= 0x7fffffff) return value;
  throw new ConfigurationError(`'${option}' is ${String(value)}. Give a whole number of bytes above 0 and below 2^31.`);
}
