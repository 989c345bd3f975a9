import { ConfigurationError } from './errors.ts';

/** JavaScript has no compiler that catches a misspelt option, and ignoring one means to run with another setting than was meant. */
export function requireKnownOptions(where: string, options: object, known: Readonly<Record<string, true>>): void {
  const unknown = Object.keys(options).filter((name) => !Object.hasOwn(known, name));
  if (unknown.length === 0) return;
  throw new ConfigurationError(`${where} has no option '${unknown.join("', '")}'. There are ${Object.keys(known).toSorted().join(', ')}.`);
}
