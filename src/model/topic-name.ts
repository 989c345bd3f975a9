const MAX_LENGTH = 249;
const LEGAL = /^[a-zA-Z0-9._-]+$/;

/** Why Kafka would refuse this topic name, or undefined. The rules are those of Kafka's `Topic.validate`. */
export function topicNameFault(name: unknown): string | undefined {
  if (typeof name !== 'string') return `is not a string but ${name === null ? 'null' : typeof name}`;
  if (name === '') return 'is empty';
  if (name === '.' || name === '..') return 'must not be only dots';
  if (name.length > MAX_LENGTH) return `has ${name.length} characters, Kafka allows ${MAX_LENGTH}`;
  if (!LEGAL.test(name)) return 'has a character other than a-z, A-Z, 0-9, dot, underscore and hyphen';
  return undefined;
}
