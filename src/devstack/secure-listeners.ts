import { mkdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Java } from './java.ts';
import type { Listener } from './kafka-settings.ts';
import { run } from './server-process.ts';
import { StackError } from './stack-error.ts';

export interface SecuredAddresses {
  /** SASL without TLS; both mechanisms. */
  readonly sasl: string;
  readonly tls: string;
  readonly saslOverTls: string;
  /** The self-signed certificate that clients have to trust, as PEM. */
  readonly certificate: string;
}

export interface SecureListeners {
  readonly listeners: readonly Listener[];
  readonly settings: Readonly<Record<string, string>>;
  /** For Kafka's StorageTool: SCRAM credentials live in the cluster's metadata. */
  readonly formatArguments: readonly string[];
  readonly addresses: SecuredAddresses;
}

/** Listeners with TLS and SASL for tests of clients: one user, a new self-signed certificate for `localhost` and 127.0.0.1. */
export async function secureListeners(
  directory: string,
  java: Java,
  user: { readonly username: string; readonly password: string },
  ports: readonly number[],
): Promise<SecureListeners> {
  const [saslPort, tlsPort, saslTlsPort] = ports as [number, number, number];
  const plain = [user.username, user.password].every((part) => /^[A-Za-z0-9]+$/.test(part));
  if (!plain) throw new StackError('User name and password of a secured test broker may hold letters and digits only.');
  const store = join(directory, 'broker.p12');
  const storePassword = 'only-for-tests';
  await rm(directory, { recursive: true, force: true });
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const keytool = join(java.home, 'bin', 'keytool');
  const access = ['-keystore', store, '-storetype', 'PKCS12', '-storepass', storePassword, '-alias', 'broker'];
  await run(
    keytool,
    [
      '-genkeypair',
      ...access,
      '-keyalg',
      'EC',
      '-groupname',
      'secp256r1',
      '-validity',
      '30',
      '-dname',
      'CN=localhost',
      '-ext',
      'SAN=dns:localhost,ip:127.0.0.1',
    ],
    { deadlineMs: 30_000 },
  );
  const pem = join(directory, 'broker.pem');
  await run(keytool, ['-exportcert', '-rfc', '-file', pem, ...access], { deadlineMs: 30_000 });

  const settings: Record<string, string> = {};
  for (const name of ['tls', 'sasltls']) {
    settings[`listener.name.${name}.ssl.keystore.location`] = store;
    settings[`listener.name.${name}.ssl.keystore.type`] = 'PKCS12';
    settings[`listener.name.${name}.ssl.keystore.password`] = storePassword;
  }
  const loginModules = 'org.apache.kafka.common.security';
  for (const name of ['sasl', 'sasltls']) {
    settings[`listener.name.${name}.sasl.enabled.mechanisms`] = 'PLAIN,SCRAM-SHA-256';
    settings[`listener.name.${name}.plain.sasl.jaas.config`] =
      `${loginModules}.plain.PlainLoginModule required user_${user.username}="${user.password}";`;
    settings[`listener.name.${name}.scram-sha-256.sasl.jaas.config`] = `${loginModules}.scram.ScramLoginModule required;`;
  }
  return {
    listeners: [
      secureListener('SASL', 'SASL_PLAINTEXT', saslPort),
      secureListener('TLS', 'SSL', tlsPort),
      secureListener('SASLTLS', 'SASL_SSL', saslTlsPort),
    ],
    settings,
    formatArguments: ['--add-scram', `SCRAM-SHA-256=[name=${user.username},password=${user.password}]`],
    addresses: {
      sasl: `127.0.0.1:${saslPort}`,
      tls: `127.0.0.1:${tlsPort}`,
      saslOverTls: `127.0.0.1:${saslTlsPort}`,
      certificate: await readFile(pem, 'utf8'),
    },
  };
}

function secureListener(name: string, protocol: Listener['protocol'], port: number): Listener {
  return { name, protocol, bind: `127.0.0.1:${port}`, advertised: `127.0.0.1:${port}` };
}
