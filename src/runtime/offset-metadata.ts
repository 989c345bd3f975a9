/**
 * The text beside a committed offset: `v1:` and the task's stream time in epoch milliseconds, so that windows close the same way after a
 * restart. Short, since the broker keeps at most `offset.metadata.max.bytes` (4096).
 */
export function encodeOffsetMetadata(streamTime: number): string {
  return `v1:${streamTime}`;
}

/** The stream time, or undefined for text that another program or a later version has written. */
export function decodeOffsetMetadata(metadata: string): number | undefined {
  const match = /^v1:(-?\d{1,16})$/.exec(metadata);
  return match === null ? undefined : Number(match[1]);
}
