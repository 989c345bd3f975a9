import { describe, expect, it } from 'vitest';
import { SinkFatalError, SinkFencedError, SinkRetriableError } from '../../../../src/model/errors.ts';
import { DeadlineExceeded, describeError, remedyOf, sqlstateOf, toSinkError } from '../../../../src/sink/postgres/sqlstate.ts';

function serverError(code: string, message = 'as the server says', fields: object = {}): Error {
  return Object.assign(new Error(message), { code, severity: 'ERROR', ...fields });
}

function nodeError(code: string): Error {
  return Object.assign(new Error(`connect ${code}`), { code });
}

describe('a full or absent target sends all rows to the dead letters (kafka-connect-jdbc#1312)', () => {
  it.each([
    '08006',
    '08P01',
    '40001',
    '40P01',
    '53100',
    '53300',
    '57014',
    '57P01',
    '57P03',
    '58030',
    '25006',
    '25P03',
    '25P04',
    '55P03',
    '55006',
    'XX000',
  ])('not here: %s is retried as a whole', (code) => {
    expect(remedyOf(serverError(code))).toBe('retry');
    expect(toSinkError(serverError(code), 'writing')).toBeInstanceOf(SinkRetriableError);
  });

  it.each(['22001', '22003', '22021', '22P02', '22P05', '23502', '23503', '23505', '23514', '44000', '54000', 'P0001'])(
    '%s is the fault of a row',
    (code) => {
      expect(remedyOf(serverError(code))).toBe('refuse');
    },
  );

  it.each(['42P01', '42703', '42501', '42804', '28P01', '28000', '3D000', '3F000', '0A000', '55000', 'XX001', '25P02'])(
    '%s is fatal',
    (code) => {
      expect(remedyOf(serverError(code))).toBe('fatal');
      expect(toSinkError(serverError(code), 'writing')).toBeInstanceOf(SinkFatalError);
    },
  );

  it('two rows of one statement in each other’s way are split', () => {
    expect(remedyOf(serverError('21000'))).toBe('split');
  });
});

describe('errors without an SQLSTATE', () => {
  it.each(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN', 'ENOENT'])('%s is retried', (code) => {
    expect(remedyOf(nodeError(code))).toBe('retry');
  });

  it('EPIPE has five characters and is no SQLSTATE', () => {
    expect(sqlstateOf(nodeError('EPIPE'))).toBeUndefined();
    expect(sqlstateOf(serverError('40P01'))).toBe('40P01');
  });

  it.each([
    'Connection terminated unexpectedly',
    'Connection terminated due to connection timeout',
    'timeout exceeded when trying to connect',
    'timeout expired',
    'Client was closed and is not queryable',
    'Client has encountered a connection error and is not queryable',
  ])('what node-postgres says in words is retried: %s', (message) => {
    expect(remedyOf(new Error(message))).toBe('retry');
  });

  it('both addresses of a host refused is retried, and described', () => {
    const error = new AggregateError([nodeError('ECONNREFUSED'), nodeError('ECONNREFUSED')]);
    expect(remedyOf(error)).toBe('retry');
    expect(describeError(error)).toBe('connect ECONNREFUSED; connect ECONNREFUSED');
  });

  it('a deadline of ours is retried', () => {
    expect(remedyOf(new DeadlineExceeded('no answer'))).toBe('retry');
  });

  it('what a function of the user throws is the fault of its record; outside of records it is fatal', () => {
    expect(remedyOf(new TypeError('x is undefined'))).toBe('refuse');
    expect(remedyOf('a string')).toBe('refuse');
    expect(toSinkError(new TypeError('x is undefined'), 'at start')).toBeInstanceOf(SinkFatalError);
  });

  it('errors of the port keep their remedy', () => {
    const fenced = new SinkFencedError('gone');
    expect(toSinkError(fenced, 'writing')).toBe(fenced);
    expect(remedyOf(new SinkRetriableError('later'))).toBe('retry');
    expect(remedyOf(new SinkFatalError('never'))).toBe('fatal');
  });
});

describe('messages', () => {
  it('say what was done, what the server said, where, and what to do', () => {
    const error = serverError('23505', 'duplicate key', {
      table: 'orders',
      constraint: 'orders_pkey',
      detail: 'Key (id)=(1) already exists.',
    });
    expect(describeError(error)).toBe('duplicate key (SQLSTATE 23505, table orders, constraint orders_pkey, Key (id)=(1) already exists.)');
    expect(toSinkError(serverError('28P01', 'password authentication failed'), 'claiming orders/3').message).toBe(
      'Postgres sink, claiming orders/3: password authentication failed (SQLSTATE 28P01). Check user, password and pg_hba.conf',
    );
  });

  it('go by what the application decides an error to be', () => {
    expect(toSinkError(serverError('42P01'), 'writing', () => 'retry')).toBeInstanceOf(SinkRetriableError);
  });
});
