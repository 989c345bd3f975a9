import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../../', import.meta.url));

/** Every file below the root that git would see, with slashes. Without git, so that an unpacked archive can be tested too. */
export function repositoryFiles(): readonly string[] {
  const ignored = readText('.gitignore')
    .split('\n')
    .filter((line) => line !== '');
  return walk('', ['.git', '.git/', ...ignored]);
}

export function readText(file: string): string {
  return readFileSync(join(root, file), 'utf8');
}

function walk(folder: string, ignored: readonly string[]): string[] {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
    const shown = entry.isDirectory() ? `${path}/` : path;
    if (ignored.some((pattern) => matches(shown, pattern))) return [];
    if (entry.isDirectory()) return walk(path, ignored);
    return entry.isFile() ? [path] : [];
  });
}

/** The part of git's patterns that .gitignore uses: `name/`, `path/name/`, `*.extension`, `name`. */
function matches(path: string, pattern: string): boolean {
  if (pattern.startsWith('*')) return path.endsWith(pattern.slice(1));
  const name = pattern.startsWith('/') ? pattern.slice(1) : pattern;
  return path === name || (!name.slice(0, -1).includes('/') && path.endsWith(`/${name}`));
}
