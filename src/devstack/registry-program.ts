import { readdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { cacheFolder, folderMadeOnce } from './cache-folder.ts';
import { findJava, findMaven } from './java.ts';
import { dependencyPlugin, type Progress } from './kafka-jars.ts';
import { run } from './server-process.ts';
import { StackError } from './stack-error.ts';

export const registryVersion = '2.6.13.Final';

/** The jar that starts Apicurio Registry with its schemas in memory. Fetched with Maven on first use (142 MB), kept in the user's cache. */
export async function registryProgram(options: { variables?: NodeJS.ProcessEnv; onProgress?: Progress } = {}): Promise<string> {
  const variables = options.variables ?? process.env;
  const target = join(cacheFolder(variables), `apicurio-registry-${registryVersion}`);
  if (!(await isComplete(target))) {
    const java = await findJava(variables);
    if ('missing' in java) throw new StackError(java.missing);
    const maven = await findMaven(variables);
    if ('missing' in maven) throw new StackError(maven.missing);
    options.onProgress?.(`Fetching Apicurio Registry ${registryVersion} with Maven (142 MB, once)`);
    await folderMadeOnce(target, isComplete, async (fresh) => {
      const artifact = `io.apicurio:apicurio-registry-app:${registryVersion}:tar.gz:all`;
      await run(maven.found, ['-q', '-B', `${dependencyPlugin}:copy`, `-Dartifact=${artifact}`, `-DoutputDirectory=${fresh}`], {
        deadlineMs: 600_000,
        cwd: fresh,
        env: { ...variables, JAVA_HOME: java.found.home },
      });
      const archive = join(fresh, `apicurio-registry-app-${registryVersion}-all.tar.gz`);
      await run('tar', ['--no-same-owner', '-xzf', archive, '-C', fresh], { deadlineMs: 120_000 });
      await rm(archive);
      await writeFile(join(fresh, 'complete'), '');
    });
  }
  return join(target, await runnerJar(target));
}

async function runnerJar(folder: string): Promise<string> {
  const runner = (await readdir(folder)).find((name) => name.endsWith('-runner.jar'));
  if (runner === undefined) throw new StackError(`${folder} holds no runner jar. Remove the folder, and it is fetched again.`);
  return runner;
}

async function isComplete(folder: string): Promise<boolean> {
  return await stat(join(folder, 'complete')).then(
    () => true,
    () => false,
  );
}
