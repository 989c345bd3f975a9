import { describe, expect, it } from 'vitest';
import { textHeader } from '../../../src/model/headers.ts';
import { coordinatesKey, idempotencyKeyHeader } from '../../../src/model/idempotency-key.ts';

describe('the idempotency key of a header', () => {
  it('is the last one, whatever its case', () => {
    const headers = [textHeader('Idempotency-Key', 'first'), textHeader('other', 'x'), textHeader('IDEMPOTENCY-KEY', 'läst')];
    expect(idempotencyKeyHeader(headers)).toBe('läst');
  });

  it('does not exist where it is empty or null', () => {
    expect(idempotencyKeyHeader([])).toBeUndefined();
    expect(idempotencyKeyHeader([textHeader('idempotency-key', '')])).toBeUndefined();
    expect(idempotencyKeyHeader([{ key: 'idempotency-key', value: null }])).toBeUndefined();
  });

  it('keeps binary keys apart, which read as text would be one', () => {
    const keyOf = (bytes: number[]): string | undefined => idempotencyKeyHeader([{ key: 'idempotency-key', value: Buffer.from(bytes) }]);
    expect(keyOf([0xff, 0x01])).toBe('0xff01');
    expect(keyOf([0xfe, 0x01])).toBe('0xfe01');
  });
});

describe('the coordinates of a record', () => {
  it('are topic, partition and offset', () => {
    expect(coordinatesKey({ topic: 'orders', partition: 3, offset: 2n ** 60n, timestamp: 0, headers: [] })).toBe(
      'orders/3/1152921504606846976',
    );
  });
});
