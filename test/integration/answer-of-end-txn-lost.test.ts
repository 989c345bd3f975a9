/**
 * The connection breaks between a request of the transaction protocol and its answer, so that only the broker knows what has happened. Guards
 * against a transaction that is done again although it was committed, one that is taken for committed although it was not, and a producer
 * that does not get out of it.
 */
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { KafkaConfig } from '../../src/index.ts';
import { ApplicationBench, copyTopology } from '../support/application-bench.ts';
import { FaultProxy } from '../support/fault-proxy.ts';
import { IndependentReader } from '../support/independent-reader.ts';
import { fillInput } from '../support/input-records.ts';
import { drained, exactInKafka, judgeKafka } from '../support/judge.ts';

const RECORDS = 2_000;
/** Written after the faults: the application goes on. */
const MORE = 200;
const PARTITIONS = 2;

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

interface Loss {
  readonly api: string;
  /** The broker has executed a request whose answer is lost, and never seen one that is lost itself. */
  readonly lost: 'answer' | 'request';
  readonly version: NonNullable<KafkaConfig['transactionVersion']>;
}

const LOSSES: readonly Loss[] = [
  ...(['EndTxn', 'TxnOffsetCommit', 'Produce'] as const).flatMap((api) =>
    (['answer', 'request'] as const).flatMap((lost) => [
      { api, lost, version: 2 as const },
      { api, lost, version: 1 as const },
    ]),
  ),
  { api: 'AddOffsetsToTxn', lost: 'answer', version: 1 },
  { api: 'AddPartitionsToTxn', lost: 'answer', version: 1 },
  { api: 'InitProducerId', lost: 'answer', version: 2 },
];

describe.each([
  { title: 'once', times: 1 },
  { title: 'three times', times: 3 },
])('lost $title in a run', ({ times }) => {
  it.concurrent.each(LOSSES)('the $lost of $api under transaction version $version', async ({ api, lost, version }) => {
    const [broker = ''] = inject('kafkaBrokers').split(',');
    const proxy = await FaultProxy.kafka(broker);
    try {
      const [input, output] = [await bench.topic('in', PARTITIONS), await bench.topic('out', PARTITIONS)];
      await fillInput(bench.client, input, { records: RECORDS });
      const applicationId = bench.name('app');
      // Each time in a transaction of its own; the producer id is only asked for at the beginning.
      const nth = api === 'InitProducerId' ? 1 : 3;
      const rule = proxy.addRule({ api, action: lost === 'answer' ? 'closeAfter' : 'closeBefore', nth, times });
      const { application, events } = bench.application({
        applicationId,
        topology: copyTopology(input, output),
        kafka: { brokers: [proxy.address], connectionTimeout: 5_000, transactionVersion: version },
        transactionTimeoutMs: 5_000,
        commitIntervalMs: 1,
        maxSliceRecords: 20,
      });
      await application.start();
      await rule.waitFired(times, 60_000);
      const place = { group: applicationId, topic: input };
      const check = (): void => {
        if (application.state === 'failed') throw new Error(JSON.stringify(events));
      };
      await drained(reader, place, { check });
      const recovered = events.filter(({ message }) => message === 'step failed');
      if (api === 'EndTxn') expect(recovered.map(({ fields }) => fields['code'])).toContain('OUTCOME_UNKNOWN');

      await fillInput(bench.client, input, { records: MORE, from: RECORDS });
      await drained(reader, place, { check });
      await application.close();
      expect(await judgeKafka(reader, { input, output, group: applicationId })).toEqual(exactInKafka(RECORDS + MORE));
    } finally {
      await proxy.close();
    }
  });
});
