import { DeserialisationError, SerialisationError } from '../model/errors.ts';
import type { Serde } from './serde.ts';
import { decodeText, refuseNull } from './text.ts';

/** What is used of a Standard Schema (https://standardschema.dev), which zod, valibot, arktype and others implement. */
export interface StandardSchema<T> {
  readonly '~standard': {
    readonly validate: (value: unknown) => SchemaResult<T> | Promise<SchemaResult<T>>;
  };
}

type SchemaResult<T> =
  | { readonly value: T; readonly issues?: undefined }
  | {
      readonly issues: readonly {
        readonly message: string;
        readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
      }[];
    };

export interface JsonOptions<T> {
  /** Turns parsed JSON into a `T`, or throws: the record is then one that cannot be deserialised. Default: taken as it is. */
  readonly validate?: ((value: unknown) => T) | StandardSchema<T>;
}

/**
 * JSON as UTF-8. Without `validate`, `T` is a promise of the sender that nobody checks. What JSON cannot express is an error when it is written:
 * undefined, functions, bigint, cycles. (JSON's own null is a value; a null payload is none, see `nullable`.)
 *
 * ```ts run
 * const flights = builder.stream('flights', { key: string(), value: json<Flight>() });
 * const checked = json({
 *   validate: (value) => {
 *     if (typeof value !== 'number') throw new TypeError('a number is needed');
 *     return value;
 *   },
 * });
 * ```
 */
export function json<T = unknown>(options: JsonOptions<T> = {}): Serde<T> {
  const { validate } = options;
  if (validate === undefined) return UNCHECKED as Serde<T>;
  const check = typeof validate === 'function' ? validate : schemaCheck(validate);
  return Object.freeze({
    name: 'json',
    serialise: write,
    deserialise: (payload: Buffer | null) => checked(parse(payload), check),
    deserialiseText: (text: string) => checked(parseText(text), check),
  });
}

function checked<T>(parsed: unknown, check: (value: unknown) => T): T {
  try {
    return check(parsed);
  } catch (error) {
    throw new DeserialisationError(`the JSON is not what is expected: ${messageOf(error)}`, { cause: error });
  }
}

/** One object for all, so that two streams of one topic that both use `json()` are known to agree. */
const UNCHECKED: Serde<unknown> = Object.freeze({ name: 'json', serialise: write, deserialise: parse, deserialiseText: parseText });

function write(value: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    throw new SerialisationError(`it cannot be written as JSON: ${messageOf(error)}`, { cause: error });
  }
  if (text === undefined) {
    throw new SerialisationError(
      `${value === undefined ? 'undefined' : `a ${typeof value}`} cannot be written as JSON (a missing return in a step?)`,
    );
  }
  return text;
}

function parse(payload: Buffer | null): unknown {
  refuseNull(payload, 'json');
  return parseText(decodeText(payload));
}

function parseText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new DeserialisationError(`not valid JSON: ${messageOf(error)}`, { cause: error });
  }
}

function schemaCheck<T>(schema: StandardSchema<T>): (value: unknown) => T {
  return (value) => {
    const result = schema['~standard'].validate(value);
    if (result instanceof Promise) {
      result.catch(() => undefined);
      throw new TypeError('the schema validates asynchronously, but serdes are synchronous');
    }
    if (result.issues === undefined) return result.value;
    throw new TypeError(
      result.issues.map(({ message, path }) => (path?.length ? `${path.map(segment).join('.')}: ${message}` : message)).join('; '),
    );
  };
}

function segment(part: PropertyKey | { readonly key: PropertyKey }): string {
  return String(typeof part === 'object' ? part.key : part);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
