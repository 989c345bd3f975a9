import { basename } from 'node:path';
import { expect, it } from 'vitest';
import { readText, repositoryFiles } from './repository-files.ts';

const files = repositoryFiles();
const textFiles = files.filter((file) =>
  /\.(ts|js|mjs|json|md|yml|yaml|sh|sql|java|xml|html|toml)$|^[^.]+$|\/[^.]+$|\/\.[^/]+$|^\.[^/]+$/.test(file),
);

/** A place on one machine: a home folder, or a folder that only exists where someone works. */
const machinePath = /(?<![\w.)}\]*?-])\/(?:home|Users|root|work|tmp)\/\w/;

it('no file names a folder of one machine', () => {
  const found = textFiles.flatMap((file) =>
    readText(file)
      .split('\n')
      .flatMap((line, index) => (machinePath.test(line) ? [`${file}:${index + 1}: ${line.trim()}`] : [])),
  );
  expect(files.length).toBeGreaterThan(50);
  expect(['', 'home', 'someone'].join('/')).toMatch(machinePath);
  expect(found).toEqual([]);
});

it('the lockfile installs from whatever registry the user has', () => {
  const lock = JSON.parse(readText('package-lock.json')) as { packages: Record<string, { resolved?: string }> };
  const entries = Object.entries(lock.packages);
  expect(entries.length).toBeGreaterThan(100);
  expect(entries.filter(([, { resolved }]) => resolved !== undefined)).toEqual([]);
  expect(readText('.npmrc')).not.toMatch(/^\s*[^#\n]*registry\s*=\s*\S*:/m);
});

it('files are kebab-case and none is a catch-all', () => {
  const code = files.filter((file) => /^(src|test|topologies|demo|bench|lint|scripts)\/.*\.(ts|js|mjs)$/.test(file));
  const misnamed = code.filter((file) => !/^[a-z0-9]+(-[a-z0-9]+)*(\.test|\.test-d|\.d)?\.(ts|js|mjs)$/.test(basename(file)));
  const catchAll = code.filter((file) => /(^|[/-])(utils?|helpers?|managers?|common)([/.-]|$)/.test(file));
  expect({ misnamed, catchAll }).toEqual({ misnamed: [], catchAll: [] });
});
