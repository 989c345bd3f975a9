/** The text form of a one-dimensional Postgres array; null is NULL. */
export function arrayLiteral(elements: readonly (string | null)[]): string {
  let literal = '{';
  for (let i = 0; i < elements.length; i++) {
    if (i > 0) literal += ',';
    literal += quoteElement(elements[i] ?? null);
  }
  return `${literal}}`;
}

const SPECIAL = /["\\]/g;
const HAS_SPECIAL = /["\\]/;

export function quoteElement(element: string | null): string {
  if (element === null) return 'NULL';
  return HAS_SPECIAL.test(element) ? `"${element.replace(SPECIAL, '\\$&')}"` : `"${element}"`;
}
