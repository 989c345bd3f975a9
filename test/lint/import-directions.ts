/** For a file, what it may import and what it may not. */
export interface Directions {
  readonly file: string;
  readonly may: readonly string[];
  readonly mayNot: readonly string[];
}

export const directions: readonly Directions[] = [
  {
    file: 'src/model/a.ts',
    may: ['./record.ts', 'node:buffer'],
    mayNot: ['../serde/serde.ts', '../sink/port.ts', '../kafka/port.ts', '../system/clock.ts', 'pino', 'tidemark'],
  },
  { file: 'src/serde/a.ts', may: ['../model/record.ts'], mayNot: ['../topology/graph.ts', '../kafka/port.ts', 'kafkajs'] },
  { file: 'src/state/a.ts', may: ['../model/record.ts'], mayNot: ['../kafka/port.ts', '../runtime/task.ts'] },
  { file: 'src/ops/a.ts', may: ['../model/record.ts', 'pino', 'prom-client'], mayNot: ['../runtime/worker.ts', '../kafka/port.ts'] },
  { file: 'src/system/a.ts', may: ['../model/clock.ts'], mayNot: ['../runtime/worker.ts'] },
  { file: 'src/kafka/port.ts', may: ['../model/record.ts'], mayNot: ['./kafkajs/client.ts', '../serde/serde.ts', 'kafkajs'] },
  {
    file: 'src/kafka/kafkajs/wire/a.ts',
    may: ['./reader.ts', '../client.ts', '../../port.ts', '../../../model/record.ts', 'kafkajs', '@node-rs/crc32'],
    mayNot: ['../../../runtime/worker.ts', '../../../sink/port.ts', '../../simulated/broker.ts', 'pg'],
  },
  { file: 'src/sink/port.ts', may: ['../model/record.ts'], mayNot: ['./postgres/sink.ts', '../kafka/port.ts'] },
  {
    file: 'src/sink/postgres/a.ts',
    may: ['../port.ts', '../../model/record.ts', 'pg'],
    mayNot: ['../../runtime/worker.ts', '../../kafka/port.ts', '../../serde/serde.ts', 'kafkajs'],
  },
  {
    file: 'src/operators/a.ts',
    may: ['../model/record.ts', '../serde/serde.ts', '../sink/port.ts', '../topology/graph.ts'],
    mayNot: ['../runtime/task.ts', '../kafka/port.ts', '../sink/postgres/sink.ts'],
  },
  {
    file: 'src/topology/a.ts',
    may: ['../operators/step.ts', '../serde/serde.ts', '../sink/port.ts'],
    mayNot: ['../runtime/task.ts', '../kafka/port.ts', '../index.ts'],
  },
  {
    file: 'src/runtime/worker.ts',
    may: ['../topology/topology.ts', '../operators/step.ts', '../kafka/port.ts', '../sink/port.ts', '../ops/log.ts', '../system/clock.ts'],
    mayNot: [
      '../kafka/kafkajs/client.ts',
      '../sink/postgres/sink.ts',
      '../devstack/stack.ts',
      '../cli/main.ts',
      '../index.ts',
      'kafkajs',
      'pg',
    ],
  },
  {
    file: 'src/runtime/application.ts',
    may: ['./worker.ts', '../kafka/kafkajs/client.ts'],
    mayNot: ['../kafka/kafkajs/group-consumer.ts', '../sink/postgres/sink.ts'],
  },
  {
    file: 'src/devstack/a.ts',
    may: ['../system/clock.ts', 'pg', 'testcontainers'],
    mayNot: ['../cli/main.ts', '../index.ts', '../lab/run.ts'],
  },
  { file: 'src/testing/a.ts', may: ['../runtime/task.ts'], mayNot: ['../cli/main.ts', '../devstack/stack.ts'] },
  { file: 'src/lab/a.ts', may: ['../devstack/stack.ts', '../runtime/application.ts'], mayNot: ['../cli/main.ts'] },
  { file: 'src/index.ts', may: ['./runtime/application.ts', './sink/postgres/sink.ts'], mayNot: ['./cli/main.ts'] },
  {
    file: 'src/cli/a.ts',
    may: ['../index.ts', '../devstack/stack.ts', 'commander'],
    mayNot: ['../../test/support/a.ts', 'testcontainers'],
  },
  { file: 'src/novelty/a.ts', may: [], mayNot: ['../model/record.ts'] },
  {
    file: 'topologies/shop/a.ts',
    may: ['../../src/index.ts', './b.ts', '../flights.ts', 'vega-datasets'],
    mayNot: ['../../src/model/record.ts', '../../src/sink/postgres/sink.ts', '../../test/support/a.ts'],
  },
  { file: 'test/unit/a.test.ts', may: ['../../src/model/record.ts', '../../src/cli/main.ts'], mayNot: [] },
];
