import { gunzipSync, gzipSync } from 'node:zlib';
import * as zlib from 'node:zlib';
import { decompress as zstdDecompressInJavaScript } from 'fzstd';
import { compressFrameSync, decompressFrameSync } from 'lz4-napi';
import { compressSync as snappyCompress, uncompressSync as snappyUncompress } from 'snappy';
import { ConfigurationError, FatalError } from '../../../model/errors.ts';
import type { Compression } from '../../port.ts';

/** The low three bits of a record batch's attributes. */
const CODECS: readonly Compression[] = ['none', 'gzip', 'snappy', 'lz4', 'zstd'];

type Transform = (bytes: Buffer) => Buffer;

// Node has zstd since 22.15; the types of older versions do not know it.
const native = zlib as { readonly zstdCompressSync?: Transform; readonly zstdDecompressSync?: Transform };

export function codecId(compression: Compression): number {
  return CODECS.indexOf(compression);
}

/** Throws FatalError for a codec that Kafka did not have when this was written. */
export function codecOf(attributes: number): Compression {
  const codec = CODECS[attributes & 0x07];
  if (codec === undefined) {
    throw new FatalError(`A record batch is compressed with the unknown codec ${attributes & 0x07}; known are ${CODECS.join(', ')}.`);
  }
  return codec;
}

/** Throws ConfigurationError where this Node cannot write the codec, so that a producer fails when it is made and not at its first batch. */
export function assertCompressible(compression: Compression): void {
  if (compression === 'zstd' && native.zstdCompressSync === undefined) {
    throw new ConfigurationError(
      `Compression 'zstd' needs Node 22.15 or later for writing (this is ${process.version}; reading it works). ` +
        "Choose 'lz4', 'snappy' or 'gzip', or run on a newer Node.",
    );
  }
}

/** What follows the header of a record batch, as `compression` writes it in a form that Kafka's Java client reads. */
export function compress(compression: Compression, records: Buffer): Buffer {
  switch (compression) {
    case 'none':
      return records;
    case 'gzip':
      return gzipSync(records);
    case 'snappy':
      return compressSnappy(records);
    case 'lz4':
      // Independent blocks, which is all that Kafka's Lz4BlockInputStream accepts.
      return compressFrameSync(records);
    case 'zstd':
      assertCompressible(compression);
      return native.zstdCompressSync!(records);
  }
}

/** The inverse of `compress`, for what any client wrote. Throws FatalError for bytes that the codec does not accept. */
export function decompress(compression: Compression, bytes: Buffer): Buffer {
  try {
    switch (compression) {
      case 'none':
        return bytes;
      case 'gzip':
        return gunzipSync(bytes);
      case 'snappy':
        return decompressSnappy(bytes);
      case 'lz4':
        return decompressFrameSync(bytes);
      case 'zstd':
        return native.zstdDecompressSync === undefined ? decompressZstdInJavaScript(bytes) : native.zstdDecompressSync(bytes);
    }
  } catch (error) {
    if (error instanceof FatalError) throw error;
    throw new FatalError(`A record batch of ${bytes.length} bytes cannot be decompressed with ${compression}: the log is corrupt there.`, {
      cause: error,
    });
  }
}

function decompressZstdInJavaScript(bytes: Buffer): Buffer {
  const records = zstdDecompressInJavaScript(bytes);
  return Buffer.from(records.buffer, records.byteOffset, records.byteLength);
}

/*
 * Java's SnappyOutputStream, which Kafka uses, frames raw snappy blocks: a magic, a version, the lowest version that can read it, then
 * each block with its length in front. Other clients write one raw block without a frame.
 */
const XERIAL_MAGIC = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00]);
const XERIAL_HEADER_BYTES = XERIAL_MAGIC.length + 8;
const XERIAL_VERSION = 1;
/** The block size of SnappyOutputStream; its reader accepts any. */
const XERIAL_BLOCK_BYTES = 32 * 1024;

function compressSnappy(records: Buffer): Buffer {
  const header = Buffer.alloc(XERIAL_HEADER_BYTES);
  XERIAL_MAGIC.copy(header);
  header.writeInt32BE(XERIAL_VERSION, XERIAL_MAGIC.length);
  header.writeInt32BE(XERIAL_VERSION, XERIAL_MAGIC.length + 4);
  const parts: Uint8Array[] = [header];
  for (let start = 0; start < records.length; start += XERIAL_BLOCK_BYTES) {
    const block = snappyCompress(records.subarray(start, start + XERIAL_BLOCK_BYTES));
    const length = Buffer.allocUnsafe(4);
    length.writeInt32BE(block.length);
    parts.push(length, block);
  }
  return Buffer.concat(parts);
}

function decompressSnappy(bytes: Buffer): Buffer {
  if (!bytes.subarray(0, XERIAL_MAGIC.length).equals(XERIAL_MAGIC)) return uncompressBlock(bytes);
  const blocks: Uint8Array[] = [];
  let position = XERIAL_HEADER_BYTES;
  while (position < bytes.length) {
    const length = position + 4 <= bytes.length ? bytes.readInt32BE(position) : -1;
    const start = position + 4;
    if (length < 0 || start + length > bytes.length) {
      throw new FatalError(`A record batch is corrupt: a snappy block ends after its ${bytes.length} bytes (block at ${position}).`);
    }
    blocks.push(uncompressBlock(bytes.subarray(start, start + length)));
    position = start + length;
  }
  return Buffer.concat(blocks);
}

function uncompressBlock(block: Buffer): Buffer {
  const bytes = snappyUncompress(block, { asBuffer: true });
  return typeof bytes === 'string' ? Buffer.from(bytes, 'utf8') : bytes;
}
