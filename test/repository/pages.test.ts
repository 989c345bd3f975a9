import { existsSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';
import config from '../../vitest.config.ts';
import { readText, repositoryFiles, root } from './repository-files.ts';

const pages = repositoryFiles().filter((file) => file.endsWith('.md'));
const { scripts } = JSON.parse(readText('package.json')) as { scripts: Record<string, string> };
const npmOwn = new Set(['ci', 'install', 'pack', 'publish']);

describe.each(pages)('%s', (page) => {
  const text = readText(page);

  it('links to files that exist', () => {
    const links = [...text.matchAll(/\]\((?!https?:|mailto:|#)([^)#\s]+)/g)].map(([, target]) =>
      normalize(join(dirname(page), target ?? '')),
    );
    expect(links.filter((target) => !existsSync(join(root, target)))).toEqual([]);
  });

  it('names scripts, test projects and files that exist', () => {
    const missing = commands(text).flatMap((command) => [
      ...missingScripts(command),
      ...missingProjects(command),
      ...missingFiles(command),
    ]);
    expect(missing).toEqual([]);
  });
});

it('a page that is wrong would be found', () => {
  const [command = ''] = commands('```sh\nnpm run nothing -- src/none.ts && npx vitest run --project void # a remark\n```\n');
  expect([...missingScripts(command), ...missingProjects(command), ...missingFiles(command)]).toEqual([
    'npm run nothing',
    '--project void',
    'src/none.ts',
  ]);
});

/** The lines of shell blocks, and code in running text that is a command. */
function commands(text: string): string[] {
  const blocks = [...text.matchAll(/^```(?:sh|bash|console)\n([\s\S]*?)^```$/gm)].flatMap(([, block]) => block?.split('\n') ?? []);
  const inline = [...text.matchAll(/`((?:npm|npx|node|\.ci\/run)\b[^`\n]*)`/g)].map(([, command]) => command ?? '');
  return [...blocks, ...inline].map((line) => line.replace(/(^|\s)#.*$/, '')).filter((line) => line.trim() !== '');
}

function missingScripts(command: string): string[] {
  return [...command.matchAll(/\bnpm (?:run )?([\w:-]+)/g)].flatMap(([call, name = '']) =>
    name in scripts || (!call.startsWith('npm run') && npmOwn.has(name)) ? [] : [call],
  );
}

function missingProjects(command: string): string[] {
  const projects = new Set(
    config.test?.projects?.map((project) => (typeof project === 'object' && 'test' in project ? project.test?.name : undefined)),
  );
  // A name in capitals stands for any.
  return [...command.matchAll(/--project[ =]([a-z]\w*)/g)].flatMap(([option, name]) => (projects.has(name) ? [] : [option]));
}

/** Words that look like a path below one of the repository's folders. */
function missingFiles(command: string): string[] {
  const words = command.split(/\s+/).map((word) => word.replace(/^\.\//, ''));
  return words.filter(
    (word) => /^(src|test|topologies|demo|bench|lint|scripts|bin|\.ci)\/[\w./-]+$/.test(word) && !existsSync(join(root, word)),
  );
}
