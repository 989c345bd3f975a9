import { describe, expect, it } from 'vitest';
import { lastHeader, textHeader } from '../../../src/model/headers.ts';
import type { RuntimeOptions } from '../../../src/runtime/options.ts';
import { PoisonRecordError, type RecordFailure } from '../../../src/runtime/record-failure.ts';
import { json } from '../../../src/serde/json.ts';
import { string } from '../../../src/serde/string.ts';
import { StreamsBuilder } from '../../../src/topology/streams-builder.ts';
import type { Topology } from '../../../src/topology/topology.ts';
import type { FakeOutput } from '../../support/fake-kafka.ts';
import { WorkerBench } from '../../support/worker-bench.ts';

const IN0 = { topic: 'in', partition: 0 };

/** Values are JSON numbers; 13 is refused by a step after it has written an output; a value above 1000 is too long to write. */
function topology(): Topology {
  const builder = new StreamsBuilder();
  const numbers = builder.stream('in', { key: string(), value: json<number>() });
  numbers.to('out');
  numbers
    .mapValues(
      (n) => {
        if (n === 13) throw new RangeError('thirteen is not liked');
        return n > 1_000 ? 'x'.repeat(n) : `ok ${n}`;
      },
      { name: 'check' },
    )
    .to('checked', { value: string() });
  return builder.build();
}

async function running(values: readonly string[], options: Partial<RuntimeOptions> = {}): Promise<WorkerBench> {
  const bench = new WorkerBench(topology(), options);
  for (const topic of ['in', 'out', 'checked', 'app-dead-letters']) bench.cluster.createTopic(topic, 1);
  await bench.load(['out', 'checked', 'app-dead-letters']);
  bench.cluster.feed(
    'in',
    0,
    values.map((value) => ({ key: 'k', value, timestamp: 1_000, headers: [textHeader('own', 'header')] })),
  );
  bench.consumer.assign([IN0]);
  return bench;
}

async function stopsWith(bench: WorkerBench): Promise<PoisonRecordError> {
  const error: unknown = await bench.steps(50).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(PoisonRecordError);
  return error as PoisonRecordError;
}

function headers(output: FakeOutput): Record<string, string> {
  return Object.fromEntries(output.headers.map(({ key, value }) => [key, Buffer.from(value ?? []).toString()]));
}

describe("policy 'fail'", () => {
  it.each([
    ['cannot be read', '{', 'deserialisation', /in-0@2 cannot be processed \(deserialisation.*onDeserialisationError/s],
    ['makes a step throw', '13', 'processing', /in-0@2 cannot be processed \(processing, step 'check'\).*thirteen.*onProcessingError/s],
    ['gives an output that is too large', '5000', 'output', /in-0@2 .*'checked'.*max\.message\.bytes/s],
  ])('stops at a record that %s; what was done before it is committed', async (_, bad, kind, message) => {
    const bench = await running(['1', '2', bad, '4']);
    bench.producer.maxBytes = 2_000;
    const error = await stopsWith(bench);
    expect(error.message).toMatch(message);
    expect(error.failure).toMatchObject({ kind, topic: 'in', partition: 0, offset: 2n });
    expect(bench.cluster.groupOffsets.get('in/0')?.offset).toBe(2n);
    expect(bench.cluster.values('out')).toEqual(['1', '2']);
    expect(bench.cluster.values('checked')).toEqual(['ok 1', 'ok 2']);
  });

  it('a restart begins with that very record', async () => {
    const first = await running(['1', '13']);
    await stopsWith(first);
    const second = await running(['1', '13']);
    second.cluster.storeOffsets([{ topic: 'in', partition: 0, offset: first.cluster.groupOffsets.get('in/0')!.offset }]);
    const error = await stopsWith(second);
    expect(error.failure.offset).toBe(1n);
    expect(second.cluster.outputs).toEqual([]);
  });

  it('is told although what was done before the record cannot be committed', async () => {
    const { FatalError } = await import('../../../src/model/errors.ts');
    const bench = await running(['1', '13']);
    bench.cluster.fail('flush', new FatalError('not authorised'));
    const error = await stopsWith(bench);
    expect(error.failure.offset).toBe(1n);
    expect(bench.cluster.outputs).toEqual([]);
    expect(bench.lines.filter(({ level }) => level === 'error')).toHaveLength(1);
    // A logger writes out properties; the record's bytes are none of its business.
    expect(Object.keys(error)).not.toContain('failure');
  });

  it('the first record of all: nothing is committed but the beginning', async () => {
    const bench = await running(['13']);
    await stopsWith(bench);
    expect(bench.cluster.outputs).toEqual([]);
    expect(bench.cluster.groupOffsets.get('in/0')?.offset ?? 0n).toBe(0n);
  });
});

describe("policy 'skip'", () => {
  it('goes on without the record, with none of its outputs, and counts it', async () => {
    const bench = await running(['1', '13', '{', '4'], { onProcessingError: 'skip', onDeserialisationError: 'skip' });
    await bench.until(() => bench.cluster.groupOffsets.get('in/0')?.offset === 4n);
    expect(bench.cluster.values('out')).toEqual(['1', '4']);
    expect(bench.cluster.values('checked')).toEqual(['ok 1', 'ok 4']);
    expect(bench.metrics.failures('in')).toEqual({ skipped: 2, deadLettered: 0 });
    expect(bench.lines.filter(({ message }) => message.includes('could not be processed'))).toHaveLength(1);
  });
});

describe("policy 'dead-letter'", () => {
  it('writes the bytes of the record in the same transaction, with headers that tell of the failure', async () => {
    const bench = await running(['1', '13', '3'], { onProcessingError: 'dead-letter' });
    await bench.until(() => bench.cluster.groupOffsets.get('in/0')?.offset === 3n);
    expect(bench.cluster.values('out')).toEqual(['1', '3']);
    const letter = bench.cluster.outputs.find(({ topic }) => topic === 'app-dead-letters')!;
    expect(letter).toMatchObject({ key: 'k', value: '13' });
    expect(letter.timestamp).toBeGreaterThan(1_600_000_000_000);
    expect(headers(letter)).toMatchObject({
      own: 'header',
      'tidemark-topic': 'in',
      'tidemark-partition': '0',
      'tidemark-offset': '1',
      'tidemark-timestamp': '1000',
      'tidemark-error-class': 'RangeError',
      'tidemark-error-message': expect.stringContaining('thirteen is not liked') as string,
      'tidemark-node': 'check',
      'tidemark-application-id': 'app',
      'tidemark-failed-at': expect.stringMatching(/^\d{13}$/) as string,
    });
    // One commit: out, checked and the dead letter became visible together with the offset.
    expect(bench.metrics.failures('in').deadLettered).toBe(1);
  });

  it('is dropped with its transaction, and written again', async () => {
    const { RetriableError } = await import('../../../src/model/errors.ts');
    const bench = await running(['13'], { onProcessingError: 'dead-letter' });
    bench.cluster.fail('flush', new RetriableError('gone'));
    await bench.until(() => bench.cluster.groupOffsets.get('in/0')?.offset === 1n);
    expect(bench.cluster.values('app-dead-letters')).toEqual(['13']);
  });

  it('replaces the headers of an earlier failure', async () => {
    const bench = await running([], { onProcessingError: 'dead-letter' });
    bench.cluster.feed('in', 0, [{ key: 'k', value: '13', headers: [textHeader('tidemark-topic', 'older'), textHeader('a', 'b')] }]);
    await bench.until(() => bench.cluster.outputs.length > 0);
    const letter = bench.cluster.outputs[0]!;
    expect(letter.headers.filter(({ key }) => key === 'tidemark-topic')).toHaveLength(1);
    expect(String(lastHeader(letter.headers, 'tidemark-topic'))).toBe('in');
  });

  it('a letter that is too large itself stops the application, and does not become a letter again', async () => {
    const bench = await running(['13'], { onProcessingError: 'dead-letter' });
    bench.producer.maxBytes = 60;
    const error = await stopsWith(bench);
    expect(error.message).toMatch(/app-dead-letters/);
    expect(bench.cluster.outputs).toEqual([]);
  });
});

describe('a function as policy', () => {
  it('decides for each record', async () => {
    const seen: RecordFailure[] = [];
    const bench = await running(['13', '{', '3'], {
      onProcessingError: (failure) => {
        seen.push(failure);
        return 'skip';
      },
      onDeserialisationError: () => 'dead-letter',
    });
    await bench.until(() => bench.cluster.groupOffsets.get('in/0')?.offset === 3n);
    expect(bench.cluster.values('out')).toEqual(['3']);
    expect(bench.cluster.values('app-dead-letters')).toEqual(['{']);
    expect(seen).toHaveLength(1);
    expect(seen[0]).toMatchObject({ kind: 'processing', node: 'check', topic: 'in', partition: 0, offset: 0n });
  });

  it.each([
    [
      'throws',
      (): never => {
        throw new Error('the policy is broken');
      },
      /the policy is broken/,
    ],
    ['answers nonsense', () => 'ignore' as never, /returned ignore/],
  ])('that %s stops the application at the record', async (_, policy, message) => {
    const bench = await running(['13'], { onProcessingError: policy });
    const error = await stopsWith(bench);
    expect(error.message).toMatch(message);
  });
});
