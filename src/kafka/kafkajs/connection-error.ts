import { FatalError, RetriableError } from '../../model/errors.ts';
import { ErrorCode } from './wire/error-code.ts';

/** The connection went down, or its deadline passed, after the request was handed to it: the broker may have executed it or not. */
export class ConnectionLostError extends RetriableError {}

/** No connection could be had, so the request was certainly not executed. */
export class BrokerUnreachableError extends RetriableError {}

/** What kafkajs puts on its errors. */
interface KafkaJsErrorShape {
  readonly name: string;
  readonly message: string;
  /** Kafka's error code where the broker gave one, else the code of the socket. */
  readonly code?: unknown;
}

const LOGIN_REFUSED: ReadonlySet<number> = new Set<number>([
  ErrorCode.UNSUPPORTED_SASL_MECHANISM,
  ErrorCode.ILLEGAL_SASL_STATE,
  ErrorCode.SASL_AUTHENTICATION_FAILED,
]);

const TLS_FAILURE = /^(ERR_TLS_|ERR_SSL_|CERT_|UNABLE_TO_|DEPTH_ZERO_|SELF_SIGNED_|EPROTO$|HOSTNAME_MISMATCH$)/;

/** Why a connection could not be opened. Wrong credentials and certificates stay wrong; all else may pass. */
export function connectError(error: unknown, address: string): BrokerUnreachableError | FatalError {
  if (error instanceof FatalError || error instanceof BrokerUnreachableError) return error;
  const { name, message, code } = shapeOf(error);
  if (name === 'KafkaJSSASLAuthenticationError' || (typeof code === 'number' && LOGIN_REFUSED.has(code))) {
    return new FatalError(`broker ${address} refused the SASL login: ${message}. Check mechanism, user and password.`, { cause: error });
  }
  if (typeof code === 'string' && TLS_FAILURE.test(code)) {
    return new FatalError(`no TLS connection to broker ${address}: ${message} (${code}). Check 'ssl' and the certificates.`, {
      cause: error,
    });
  }
  return new BrokerUnreachableError(`no connection to broker ${address}: ${message}. Check that it runs and that the address is right.`, {
    cause: error,
  });
}

function shapeOf(error: unknown): KafkaJsErrorShape {
  return error instanceof Error ? error : { name: 'Error', message: String(error) };
}
