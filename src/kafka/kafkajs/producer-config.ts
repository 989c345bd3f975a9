import { ConfigurationError } from '../../model/errors.ts';
import type { ProducerOptions, TransactionalProducerOptions } from '../port.ts';
import { milliseconds } from './config.ts';
import type { SenderOptions } from './sender.ts';
import { assertCompressible } from './wire/compression.ts';

const DEFAULT_BATCH_BYTES = 512 * 1024;
const DEFAULT_MAX_BUFFERED_BYTES = 32 * 1024 * 1024;
const DEFAULT_DELIVERY_TIMEOUT_MS = 30_000;
const DEFAULT_REQUEST_TIMEOUT_MS = 10_000;
const DEFAULT_TRANSACTION_TIMEOUT_MS = 10_000;

/** `ProducerOptions` with every default filled in. Throws ConfigurationError that names the option. */
export function senderOptions(options: ProducerOptions): SenderOptions {
  const compression = options.compression ?? 'none';
  assertCompressible(compression);
  return {
    compression,
    batchBytes: bytes('batchBytes', options.batchBytes, DEFAULT_BATCH_BYTES),
    maxBufferedBytes: bytes('maxBufferedBytes', options.maxBufferedBytes, DEFAULT_MAX_BUFFERED_BYTES),
    deliveryTimeoutMs: milliseconds('deliveryTimeoutMs', options.deliveryTimeoutMs, DEFAULT_DELIVERY_TIMEOUT_MS),
    requestTimeoutMs: milliseconds('requestTimeoutMs', options.requestTimeoutMs, DEFAULT_REQUEST_TIMEOUT_MS),
  };
}

export function transactionTimeout(options: TransactionalProducerOptions): number {
  return milliseconds('transactionTimeoutMs', options.transactionTimeoutMs, DEFAULT_TRANSACTION_TIMEOUT_MS);
}

function bytes(option: string, value: number | undefined, defaultBytes: number): number {
  if (value === undefined) return defaultBytes;
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new ConfigurationError(`'${option}' is ${String(value)}. Give a whole number of bytes above 0.`);
}
