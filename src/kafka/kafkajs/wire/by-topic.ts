/** Groups items by topic, in order of first appearance, as most requests want them. */
export function byTopic<T extends { readonly topic: string }>(items: readonly T[]): [string, T[]][] {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const group = groups.get(item.topic);
    if (group === undefined) groups.set(item.topic, [item]);
    else group.push(item);
  }
  return [...groups];
}
