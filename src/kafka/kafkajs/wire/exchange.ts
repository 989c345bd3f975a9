import type { WireReader } from './reader.ts';
import type { WireWriter } from './writer.ts';

/** One request and how to read its answer. Header and correlation are the connection's part, `encode` and `decode` the body's. */
export interface Exchange<Response> {
  readonly apiKey: number;
  readonly apiVersion: number;
  /** For messages, as Kafka's protocol guide spells it. */
  readonly apiName: string;
  /** A flexible version (KIP-482): request header 2 and response header 1, whose tagged fields the connection writes and skips. */
  readonly flexible: boolean;
  /** False for a request that the broker never answers (Produce with acks 0); `decode` is not called then. Default true. */
  readonly expectResponse?: boolean;
  encode(writer: WireWriter): void;
  decode(reader: WireReader): Response;
}
