/** One record header. Kafka keeps headers in order and allows the same key more than once. */
export interface Header {
  readonly key: string;
  readonly value: Uint8Array | null;
}

export type Headers = readonly Header[];

export const NO_HEADERS: Headers = Object.freeze([]);

/** The value of the last header with this key, as Kafka's `Headers.lastHeader`; undefined when there is none. */
export function lastHeader(headers: Headers, key: string): Uint8Array | null | undefined {
  for (let i = headers.length - 1; i >= 0; i--) {
    const header = headers[i];
    if (header !== undefined && header.key === key) return header.value;
  }
  return undefined;
}

/** A header whose value is UTF-8 text. */
export function textHeader(key: string, value: string): Header {
  return { key, value: Buffer.from(value, 'utf8') };
}
