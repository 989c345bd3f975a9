/**
 * The partition of a key, as Kafka's Java client chooses it (murmur2, `BuiltInPartitioner.partitionForKey`), so that a topic may be
 * written by both and records of one key still meet in one partition.
 */
export function partitionForKey(key: Uint8Array | string, partitionCount: number): number {
  return ((typeof key === 'string' ? hashText(key) : murmur2(key)) & 0x7fffffff) % partitionCount;
}

const SEED = 0x9747b28c;
const MULTIPLIER = 0x5bd1e995;

/** Signed 32-bit murmur2 with the seed that Kafka uses (`org.apache.kafka.common.utils.Utils.murmur2`). */
export function murmur2(data: Uint8Array): number {
  return hash(data, data.length);
}

function hash(data: Uint8Array, length: number): number {
  const tail = length & 3;
  const wordsEnd = length - tail;
  let state = SEED ^ length;
  for (let i = 0; i < wordsEnd; i += 4) {
    let word = data[i]! | (data[i + 1]! << 8) | (data[i + 2]! << 16) | (data[i + 3]! << 24);
    word = Math.imul(word, MULTIPLIER);
    word = Math.imul(word ^ (word >>> 24), MULTIPLIER);
    state = Math.imul(state, MULTIPLIER) ^ word;
  }
  if (tail > 0) {
    if (tail > 2) state ^= data[wordsEnd + 2]! << 16;
    if (tail > 1) state ^= data[wordsEnd + 1]! << 8;
    state = Math.imul(state ^ data[wordsEnd]!, MULTIPLIER);
  }
  state = Math.imul(state ^ (state >>> 13), MULTIPLIER);
  return state ^ (state >>> 15);
}

/** Up to this length, a loop beats the call into native code and the view that it needs. */
const SHORT = 128;
/** Shared: a key is hashed as soon as it is there, and never kept. */
const scratch = Buffer.allocUnsafe(SHORT);

function hashText(text: string): number {
  const { length } = text;
  if (length <= SHORT) {
    let i = 0;
    for (; i < length; i++) {
      const unit = text.charCodeAt(i);
      if (unit > 0x7f) break;
      scratch[i] = unit;
    }
    if (i === length) return hash(scratch, length);
  }
  return murmur2(Buffer.from(text, 'utf8'));
}
