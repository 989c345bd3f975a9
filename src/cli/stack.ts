import { type Command, Option } from 'commander';
import { addressVariables, withoutPassword } from '../devstack/given-address.ts';
import { stackStatus, startStack, stopStack, type RunningService, type Source } from '../devstack/stack.ts';

interface UpOptions {
  readonly registry?: true;
  readonly source?: Source;
  readonly json?: true;
}

/** Adds `tidemark stack up|status|down`. Results go to standard output, progress to standard error. */
export function registerStack(program: Command): void {
  const stack = program.command('stack').description('Kafka, Postgres and a schema registry for development, one of each per directory');
  stack
    .command('up')
    .description('start what does not run yet, and print the addresses')
    .option('--registry', 'with a schema registry')
    .addOption(new Option('--source <source>', 'only from there, instead of the first that has it').choices(['given', 'docker', 'local']))
    .option('--json', 'print one JSON object')
    .action(up);
  stack.command('status').description('what runs, where, and why from there').option('--json', 'print one JSON array').action(status);
  stack
    .command('down')
    .description('stop it, and what crashed test runs have left behind')
    .option('--remove-data', 'remove its data as well')
    .option('--json', 'print one JSON object')
    .action(down);
}

async function up(options: UpOptions): Promise<void> {
  const stack = await startStack({
    registry: options.registry === true,
    ...(options.source === undefined ? {} : { sources: [options.source] }),
    onProgress: progress,
  });
  const rows: { readonly title: string; readonly address: string; readonly service: RunningService; readonly variable: string }[] = [
    { title: 'Kafka', address: stack.kafka.brokers, service: stack.kafka, variable: addressVariables.kafka },
    { title: 'Postgres', address: stack.postgres.url, service: stack.postgres, variable: addressVariables.postgres },
  ];
  if (stack.registry !== undefined) {
    rows.push({ title: 'Registry', address: stack.registry.url, service: stack.registry, variable: addressVariables.registry });
  }
  if (options.json === true) {
    const services = rows.map(
      ({ title, address, service: { how, why, startedHere } }) => [title.toLowerCase(), { address, how, why, startedHere }] as const,
    );
    const environment = Object.fromEntries(rows.map((row) => [row.variable, row.address]));
    print(JSON.stringify({ ...Object.fromEntries(services), environment }));
    return;
  }
  for (const { title, address, service } of rows) {
    print(
      `${title.padEnd(9)} ${withoutPassword(address)}${service.startedHere ? '' : ', was running'}\n          ${service.how}: ${service.why}`,
    );
  }
  print('');
  for (const row of rows) print(`export ${row.variable}=${row.address}`);
}

async function status(options: { readonly json?: true }): Promise<void> {
  const rows = await stackStatus();
  if (options.json === true) {
    print(JSON.stringify(rows));
    return;
  }
  if (rows.length === 0) print('No stack of this directory runs. Start one with: tidemark stack up');
  for (const row of rows) {
    const address = row.address === undefined ? '' : ` ${withoutPassword(row.address)}`;
    print(`${row.name.padEnd(9)} ${row.running ? 'runs' : 'does not run'}${address}\n          ${row.how}: ${row.why}`);
  }
}

async function down(options: { readonly removeData?: true; readonly json?: true }): Promise<void> {
  const stopped = await stopStack({ removeData: options.removeData === true, onProgress: progress });
  if (options.json === true) print(JSON.stringify({ stopped }));
  else print(stopped.length === 0 ? 'No stack of this directory runs.' : `Stopped: ${stopped.join(', ')}.`);
}

function progress(line: string): void {
  process.stderr.write(`${line}\n`);
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}
