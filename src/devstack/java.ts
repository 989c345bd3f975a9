import { access, constants } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import { run } from './server-process.ts';

/** What was looked for, or a sentence saying what is missing. */
export type Lookup<T> = { readonly found: T } | { readonly missing: string };

export interface Java {
  readonly command: string;
  readonly home: string;
  readonly version: number;
  /** The full version of its runtime. */
  readonly build: string;
}

const oldestJava = 17;

/** `$JAVA_HOME/bin/java`, else the `java` on the path; 17 or newer. */
export async function findJava(variables: NodeJS.ProcessEnv): Promise<Lookup<Java>> {
  const home = variables['JAVA_HOME'];
  const candidates = [...(home === undefined || home === '' ? [] : [join(home, 'bin')]), ...pathFolders(variables)];
  const tooOld: string[] = [];
  for (const folder of candidates) {
    const command = join(folder, 'java');
    if (!(await isExecutable(command))) continue;
    try {
      const printed = await run(command, ['-XshowSettings:properties', '-version'], { deadlineMs: 30_000, env: variables });
      const version = /java\.specification\.version = (?:1\.)?(\d+)/.exec(printed)?.[1];
      const javaHome = /java\.home = (.+)/.exec(printed)?.[1]?.trim();
      if (version === undefined) continue;
      const build = /java\.runtime\.version = (.+)/.exec(printed)?.[1]?.trim();
      if (Number(version) >= oldestJava) {
        return { found: { command, home: javaHome ?? dirname(folder), version: Number(version), build: build ?? version } };
      }
      tooOld.push(`${command} is version ${version}`);
    } catch {
      // A stub that only asks for Java to be installed (as on macOS): look on.
    }
  }
  const found = tooOld.length === 0 ? 'none was found in JAVA_HOME or on PATH' : tooOld.join(', ');
  return { missing: `Java ${oldestJava} or newer is missing (${found})` };
}

export async function findMaven(variables: NodeJS.ProcessEnv): Promise<Lookup<string>> {
  const found = await findOnPath('mvn', variables);
  return found === undefined ? { missing: 'Maven (mvn) is missing, which fetches the Kafka broker' } : { found };
}

export async function findOnPath(name: string, variables: NodeJS.ProcessEnv): Promise<string | undefined> {
  for (const folder of pathFolders(variables)) {
    if (await isExecutable(join(folder, name))) return join(folder, name);
  }
  return undefined;
}

export async function isExecutable(file: string): Promise<boolean> {
  return await access(file, constants.X_OK).then(
    () => true,
    () => false,
  );
}

function pathFolders(variables: NodeJS.ProcessEnv): string[] {
  return (variables['PATH'] ?? '').split(delimiter).filter((folder) => folder !== '');
}
