/** A client port of the broker. */
export interface Listener {
  readonly name: string;
  readonly protocol: 'PLAINTEXT' | 'SASL_PLAINTEXT' | 'SSL' | 'SASL_SSL';
  /** Host and port that the broker binds. */
  readonly bind: string;
  /** Host and port that clients are sent to. */
  readonly advertised: string;
}

export interface KafkaLayout {
  /** The first one is also the one between brokers. */
  readonly listeners: readonly Listener[];
  readonly controller: string;
  readonly dataDirectory: string;
  /** How long the controller takes a silent broker for alive; a killed one cannot come back earlier. Kafka's default is 9000 ms. */
  readonly sessionTimeoutMs: number;
}

/** The settings of a single node that is broker and controller: all replication factors 1, and no waits that serve larger clusters only. */
export function kafkaSettings(layout: KafkaLayout): Record<string, string> {
  const first = layout.listeners[0];
  if (first === undefined) throw new Error('A Kafka broker needs at least one listener.');
  return {
    'process.roles': 'broker,controller',
    'node.id': '1',
    'controller.quorum.voters': `1@${layout.controller}`,
    'controller.listener.names': 'CONTROLLER',
    'inter.broker.listener.name': first.name,
    listeners: [...layout.listeners.map((listener) => `${listener.name}://${listener.bind}`), `CONTROLLER://${layout.controller}`].join(
      ',',
    ),
    'advertised.listeners': layout.listeners.map((listener) => `${listener.name}://${listener.advertised}`).join(','),
    'listener.security.protocol.map': [
      ...layout.listeners.map((listener) => `${listener.name}:${listener.protocol}`),
      'CONTROLLER:PLAINTEXT',
    ].join(','),
    'log.dirs': layout.dataDirectory,
    'auto.create.topics.enable': 'false',
    // Retention goes by the records' own times: data of years ago, as examples are made of, would be deleted within minutes.
    'log.retention.ms': '-1',
    'min.insync.replicas': '1',
    'default.replication.factor': '1',
    'offsets.topic.replication.factor': '1',
    'offsets.topic.num.partitions': '4',
    'transaction.state.log.replication.factor': '1',
    'transaction.state.log.min.isr': '1',
    'transaction.state.log.num.partitions': '4',
    'share.coordinator.state.topic.replication.factor': '1',
    'share.coordinator.state.topic.min.isr': '1',
    // Kafka waits 3 s for further members of a new group.
    'group.initial.rebalance.delay.ms': '0',
    // Kafka looks for transactions that are over their time every 10 s.
    'transaction.abort.timed.out.transaction.cleanup.interval.ms': '1000',
    'broker.session.timeout.ms': String(layout.sessionTimeoutMs),
    'broker.heartbeat.interval.ms': String(Math.min(2_000, Math.floor(layout.sessionTimeoutMs / 5))),
  };
}

/** As a Java properties file. */
export function propertiesText(settings: Readonly<Record<string, string>>): string {
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${value.replaceAll('\\', '\\\\')}\n`)
    .join('');
}

/** As the variables that the official container image reads. */
export function containerVariables(settings: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(settings).map(([name, value]) => [`KAFKA_${name.replaceAll('.', '_').toUpperCase()}`, value]));
}
