/**
 * The partition of a key, as Kafka's Java client chooses it (murmur2, `BuiltInPartitioner.partitionForKey`), so that a topic may be
 * written by both and records of one key still meet in one partition.
 */
export function partitionForKey(key: Uint8Array | string, partitionCount: number): number {
  return (murmur2(typeof key === 'string' ? utf8(key) : key) & 0x7fffffff) % partitionCount;
}

const SEED = 0x9747b28c;
const MULTIPLIER = 0x5bd1e995;

/** Signed 32-bit murmur2 with the seed that Kafka uses (`org.apache.kafka.common.utils.Utils.murmur2`). */
export function murmur2(data: Uint8Array): number {
  const length = data.length;
  const tail = length & 3;
  const wordsEnd = length - tail;
  let hash = SEED ^ length;
  for (let i = 0; i < wordsEnd; i += 4) {
    let word = data[i]! | (data[i + 1]! << 8) | (data[i + 2]! << 16) | (data[i + 3]! << 24);
    word = Math.imul(word, MULTIPLIER);
    word = Math.imul(word ^ (word >>> 24), MULTIPLIER);
    hash = Math.imul(hash, MULTIPLIER) ^ word;
  }
  if (tail > 0) {
    if (tail > 2) hash ^= data[wordsEnd + 2]! << 16;
    if (tail > 1) hash ^= data[wordsEnd + 1]! << 8;
    hash = Math.imul(hash ^ data[wordsEnd]!, MULTIPLIER);
  }
  hash = Math.imul(hash ^ (hash >>> 13), MULTIPLIER);
  return hash ^ (hash >>> 15);
}

// A key is hashed as soon as it is encoded and never kept, so short ones share one buffer.
const scratch = Buffer.allocUnsafe(1024);

function utf8(text: string): Uint8Array {
  if (text.length * 3 > scratch.length) return Buffer.from(text, 'utf8');
  return scratch.subarray(0, scratch.write(text, 0, 'utf8'));
}
