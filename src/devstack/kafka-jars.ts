import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { cacheFolder, folderMadeOnce } from './cache-folder.ts';
import { findJava, findMaven } from './java.ts';
import { run } from './server-process.ts';
import { StackError } from './stack-error.ts';

export const kafkaVersion = '4.1.0';
export const dependencyPlugin = 'org.apache.maven.plugins:maven-dependency-plugin:3.6.1';

export type Progress = (line: string) => void;

/**
 * The folder with the jars of the Kafka broker, its tools and its Java clients, for a class path of `FOLDER/*`. Fetched with Maven on
 * first use (45 MB), then kept in the user's cache for all checkouts. Throws if there is no Java, or no Maven and no copy yet.
 */
export async function kafkaJars(options: { variables?: NodeJS.ProcessEnv; onProgress?: Progress } = {}): Promise<string> {
  const variables = options.variables ?? process.env;
  const target = join(cacheFolder(variables), `kafka-${kafkaVersion}`);
  if (await isComplete(target)) return join(target, 'lib');
  const java = await findJava(variables);
  if ('missing' in java) throw new StackError(java.missing);
  const maven = await findMaven(variables);
  if ('missing' in maven) throw new StackError(maven.missing);
  options.onProgress?.(`Fetching Apache Kafka ${kafkaVersion} with Maven (45 MB, once)`);
  const folder = await folderMadeOnce(target, isComplete, async (fresh) => {
    await writeFile(join(fresh, 'pom.xml'), pom);
    await run(
      maven.found,
      [
        '-q',
        '-B',
        '-f',
        join(fresh, 'pom.xml'),
        `${dependencyPlugin}:copy-dependencies`,
        '-DincludeScope=runtime',
        `-DoutputDirectory=${join(fresh, 'lib')}`,
      ],
      { deadlineMs: 600_000, env: { ...variables, JAVA_HOME: java.found.home } },
    );
    const sizes = await jarSizes(fresh);
    await writeFile(join(fresh, 'complete.json'), JSON.stringify(sizes));
  });
  return join(folder, 'lib');
}

const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidemark</groupId>
  <artifactId>devstack</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>${kafkaVersion}</version></dependency>
    <!-- Kafka logs through slf4j 1.7 and brings no back end: without one a broker that fails says nothing. -->
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version></dependency>
  </dependencies>
</project>
`;

async function jarSizes(folder: string): Promise<Record<string, number>> {
  const lib = join(folder, 'lib');
  const names = (await readdir(lib)).filter((name) => name.endsWith('.jar')).toSorted();
  const sizes = await Promise.all(names.map(async (name) => [name, (await stat(join(lib, name))).size] as const));
  return Object.fromEntries(sizes);
}

async function isComplete(folder: string): Promise<boolean> {
  try {
    const wanted = JSON.parse(await readFile(join(folder, 'complete.json'), 'utf8')) as Record<string, number>;
    const there = await jarSizes(folder);
    const names = Object.keys(wanted);
    return names.includes(`kafka_2.13-${kafkaVersion}.jar`) && names.every((name) => there[name] === wanted[name]);
  } catch {
    return false;
  }
}
