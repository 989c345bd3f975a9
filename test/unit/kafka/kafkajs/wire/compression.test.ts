import * as zlib from 'node:zlib';
import { compressSync as snappyBlock } from 'snappy';
import { describe, expect, it } from 'vitest';
import { assertCompressible, codecId, codecOf, compress, decompress } from '../../../../../src/kafka/kafkajs/wire/compression.ts';
import { ConfigurationError, FatalError } from '../../../../../src/model/errors.ts';

const writesZstd = 'zstdCompressSync' in zlib;
const CODECS = ['none', 'gzip', 'snappy', 'lz4', 'zstd'] as const;
const writable = CODECS.filter((codec) => codec !== 'zstd' || writesZstd);

const samples = {
  nothing: Buffer.alloc(0),
  text: Buffer.from('the same again and again. '.repeat(20_000)),
  noise: Buffer.from(Array.from({ length: 100_000 }, (_, i) => (Math.imul(i, 0x5bd1e995) >>> 13) & 0xff)),
};

describe('compression', () => {
  it('has the numbers of the record batch format', () => {
    expect(CODECS.map(codecId)).toEqual([0, 1, 2, 3, 4]);
    expect([0x10, 0x21, 2, 3, 4].map(codecOf)).toEqual(CODECS);
    expect(() => codecOf(5)).toThrow(FatalError);
  });

  it.each(writable.flatMap((codec) => Object.entries(samples).map(([name, bytes]) => ({ codec, name, bytes }))))(
    '$codec gives $name back',
    ({ codec, bytes }) => {
      expect(decompress(codec, compress(codec, bytes)).equals(bytes)).toBe(true);
    },
  );

  it.each(writable.filter((codec) => codec !== 'none'))('%s makes text smaller', (codec) => {
    expect(compress(codec, samples.text).length).toBeLessThan(samples.text.length / 5);
  });

  it('reads snappy without a frame, as other clients write it', () => {
    expect(decompress('snappy', snappyBlock(samples.text)).equals(samples.text)).toBe(true);
  });

  it('frames snappy in blocks of 32 KiB, as Java does', () => {
    const framed = compress('snappy', samples.text);
    expect(framed.subarray(0, 16).toString('latin1')).toBe('\u0082SNAPPY\0\0\0\0\u0001\0\0\0\u0001');
    let blocks = 0;
    for (let at = 16; at < framed.length; at += 4 + framed.readInt32BE(at)) blocks++;
    expect(blocks).toBe(Math.ceil(samples.text.length / 32_768));
  });

  it('writes lz4 frames of independent blocks, which is all that Java reads', () => {
    const frame = compress('lz4', samples.text);
    expect(frame.readUInt32LE(0)).toBe(0x184d2204);
    expect(frame.readUInt8(4) & 0b1110_0000).toBe(0b0110_0000);
  });

  it.each(CODECS.filter((codec) => codec !== 'none'))('%s: corrupt bytes are a FatalError', (codec) => {
    expect(() => decompress(codec, Buffer.from('this is not compressed at all'))).toThrow(FatalError);
  });

  it('a snappy block that claims to be longer than the batch is a FatalError', () => {
    const framed = Buffer.from(compress('snappy', samples.text));
    framed.writeInt32BE(0x7fffffff, 16);
    expect(() => decompress('snappy', framed)).toThrow(FatalError);
    expect(() => decompress('snappy', compress('snappy', samples.text).subarray(0, 18))).toThrow(FatalError);
  });

  it.runIf(!writesZstd)('zstd is refused for writing where Node does not have it', () => {
    expect(() => assertCompressible('zstd')).toThrow(ConfigurationError);
    expect(() => compress('zstd', samples.text)).toThrow(/22\.15/);
  });
});
