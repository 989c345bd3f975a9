/**
 * Records that cannot be processed, on a real broker. Guards against one that is passed over without a word, one that stops more than itself, a
 * dead letter without its commit or a commit without its dead letter, and half of a record's outputs.
 */
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { RetriableError, StreamsBuilder, string, textHeader, type Topology } from '../../src/index.ts';
import { ApplicationBench } from '../support/application-bench.ts';
import { IndependentReader, type IndependentRecord } from '../support/independent-reader.ts';
import { drained } from '../support/judge.ts';

const RECORDS = 40;
const POISON = 17;

let bench: ApplicationBench;
let reader: IndependentReader;

beforeAll(async () => {
  bench = await ApplicationBench.open(inject('kafkaBrokers'));
  reader = await IndependentReader.open({ brokers: inject('kafkaBrokers'), jars: inject('kafkaJars') });
});

afterAll(async () => {
  await bench.close();
  await reader.close();
});

/** `value-0`, `value-1`...; the poison as it is given. */
async function fill(topic: string, poison: string): Promise<void> {
  const producer = bench.client.idempotentProducer();
  try {
    await producer.init();
    await producer.loadTopics([topic]);
    for (let i = 0; i < RECORDS; i++) {
      const value = i === POISON ? poison : `value-${i}`;
      producer.append(topic, 0, `key-${i}`, value, Date.now(), [textHeader('trace', `trace-${i}`)]);
    }
    await producer.flush();
  } finally {
    await producer.close();
  }
}

/** Each record becomes two; the poison is found out between them. */
function doubling(input: string, first: string, second: string, strict = true): Topology {
  const builder = new StreamsBuilder();
  const records = builder.stream(input, { key: string(), value: string() });
  records.to(first);
  records
    .peek((value) => {
      if (strict && value === 'poison') throw new RangeError('this is poison');
    })
    .to(second);
  return builder.build();
}

function valuesOf(records: readonly IndependentRecord[]): (string | undefined)[] {
  return records.map(({ value }) => value?.toString());
}

function expected(without?: number, end = RECORDS): string[] {
  return Array.from({ length: end }, (_, i) => `value-${i}`).filter((_, i) => i !== without);
}

async function topics(): Promise<{ input: string; first: string; second: string; applicationId: string }> {
  const [input, first, second] = [await bench.topic('in'), await bench.topic('first'), await bench.topic('second')];
  await fill(input, 'poison');
  return { input, first, second, applicationId: bench.name('app') };
}

describe('a record whose step throws between two outputs', () => {
  it("stops the application exactly there under 'fail', and a restart begins with it", async () => {
    const { input, first, second, applicationId } = await topics();
    const stopped = bench.application({ applicationId, topology: doubling(input, first, second) });
    await stopped.application.start();
    const error = await stopped.failure();
    expect(error).toMatchObject({ code: 'POISON_RECORD', failure: { kind: 'processing', offset: BigInt(POISON) } });
    expect(error.message).toContain(`${input}-0@${POISON}`);
    for (const topic of [first, second]) {
      const { records, partitions } = await reader.read(topic);
      expect(valuesOf(records)).toEqual(expected(undefined, POISON));
      expect(partitions[0]!.lastStable).toBe(partitions[0]!.highWatermark);
    }
    expect(await reader.groupOffsets(applicationId)).toMatchObject([{ topic: input, offset: BigInt(POISON) }]);

    // Again, with nothing mended, nothing moves.
    const again = bench.application({ applicationId, topology: doubling(input, first, second) });
    await again.application.start();
    expect(await again.failure()).toMatchObject({ failure: { offset: BigInt(POISON) } });

    const mended = bench.application({ applicationId, topology: doubling(input, first, second, false) });
    await mended.application.start();
    await drained(reader, { group: applicationId, topic: input });
    const all = expected().with(POISON, 'poison');
    for (const topic of [first, second]) expect(valuesOf((await reader.read(topic)).records)).toEqual(all);
  });

  it("is passed over with all of its outputs under 'skip'", async () => {
    const { input, first, second, applicationId } = await topics();
    const running = bench.application({ applicationId, topology: doubling(input, first, second), onProcessingError: 'skip' });
    await running.application.start();
    await drained(reader, { group: applicationId, topic: input });
    for (const topic of [first, second]) expect(valuesOf((await reader.read(topic)).records)).toEqual(expected(POISON));
    expect(await running.application.metrics.getSingleMetricAsString('tidemark_skipped_records_total')).toMatch(/ 1$/m);
  });

  it("is all that goes to the dead letters under 'dead-letter', in the transaction of its commit", async () => {
    const { input, first, second, applicationId } = await topics();
    let aborted = false;
    const deadLetterTopic = await bench.topic('dead');
    const running = bench.application({
      applicationId,
      deadLetterTopic,
      topology: doubling(input, first, second),
      onProcessingError: 'dead-letter',
      // The first transaction that holds everything is given up: its dead letter must go with it.
      failPoints: (name) => {
        if (name !== 'after-flush' || aborted) return;
        aborted = true;
        throw new RetriableError('given up by the test');
      },
    });
    const began = Date.now();
    await running.application.start();
    await drained(reader, { group: applicationId, topic: input });
    expect(aborted).toBe(true);
    for (const topic of [first, second]) expect(valuesOf((await reader.read(topic)).records)).toEqual(expected(POISON));

    const { records: letters, partitions } = await reader.read(deadLetterTopic);
    expect(letters).toHaveLength(1);
    expect(partitions[0]!.highWatermark).toBeGreaterThan(2n);
    const [letter] = letters;
    expect(letter).toMatchObject({ key: Buffer.from(`key-${POISON}`), value: Buffer.from('poison') });
    const headers = Object.fromEntries(letter!.headers.map(({ key, value }) => [key, value?.toString()]));
    expect(headers).toMatchObject({
      trace: `trace-${POISON}`,
      'tidemark-topic': input,
      'tidemark-partition': '0',
      'tidemark-offset': String(POISON),
      'tidemark-error-class': 'RangeError',
      'tidemark-error-kind': 'processing',
      'tidemark-application-id': applicationId,
    });
    expect(headers['tidemark-error-message']).toContain('this is poison');
    const failedAt = Number(headers['tidemark-failed-at']);
    expect(failedAt).toBeGreaterThanOrEqual(began);
    expect(failedAt).toBeLessThanOrEqual(Date.now());
  });
});

describe('a record that is too large for its output topic', () => {
  const LIMIT = 2_000;

  async function large(): Promise<{ input: string; output: string; applicationId: string; topology: Topology; poison: string }> {
    const input = await bench.topic('in');
    const output = await bench.topic('out', 1, { 'max.message.bytes': String(LIMIT) });
    const poison = 'x'.repeat(2 * LIMIT);
    await fill(input, poison);
    const builder = new StreamsBuilder();
    builder.stream(input, { key: string(), value: string() }).to(output);
    return { input, output, applicationId: bench.name('app'), topology: builder.build(), poison };
  }

  it("stops the application and names the topic and its limit under 'fail'", async () => {
    const { input, output, applicationId, topology } = await large();
    const running = bench.application({ applicationId, topology });
    await running.application.start();
    const error = await running.failure();
    expect(error).toMatchObject({ code: 'POISON_RECORD', failure: { kind: 'output', offset: BigInt(POISON) } });
    expect(error.message).toContain(output);
    expect(error.message).toContain('max.message.bytes');
    expect(valuesOf((await reader.read(output)).records)).toEqual(expected(undefined, POISON));
    expect(await reader.groupOffsets(applicationId)).toMatchObject([{ topic: input, offset: BigInt(POISON) }]);
  });

  it("goes to the dead letters whole under 'dead-letter'", async () => {
    const { input, output, applicationId, topology, poison } = await large();
    const deadLetterTopic = await bench.topic('dead');
    const running = bench.application({ applicationId, topology, deadLetterTopic, onProcessingError: 'dead-letter' });
    await running.application.start();
    await drained(reader, { group: applicationId, topic: input });
    expect(valuesOf((await reader.read(output)).records)).toEqual(expected(POISON));
    expect(valuesOf((await reader.read(deadLetterTopic)).records)).toEqual([poison]);
  });
});
