/** Of an even number of values, the mean of the two in the middle. Throws for none. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const upper = sorted[sorted.length >> 1];
  const lower = sorted[(sorted.length - 1) >> 1];
  if (upper === undefined || lower === undefined) throw new Error('there is no median of nothing');
  return (lower + upper) / 2;
}

/** How much larger `ours` is than `theirs`, round by round, so that what slows down a whole round changes nothing. */
export function pairedRatio(ours: readonly number[], theirs: readonly number[]): number {
  return median(ours.map((value, round) => value / (theirs[round] ?? Number.NaN)));
}

export function whole(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

export function thousands(value: number): string {
  return `${(value / 1000).toFixed(0)}k`;
}

export function megabytes(bytes: number): string {
  return `${(bytes / 2 ** 20).toFixed(0)} MiB`;
}

export function ratio(value: number): string {
  return `${value.toFixed(2)}x`;
}
