import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { cacheFolder, folderMadeOnce } from '../../../src/devstack/cache-folder.ts';

const base = mkdtempSync(join(tmpdir(), 'tidemark-cache-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));

async function isComplete(folder: string): Promise<boolean> {
  return existsSync(join(folder, 'a')) && existsSync(join(folder, 'b'));
}

async function fill(folder: string, text: string): Promise<void> {
  await writeFile(join(folder, 'a'), text);
  await writeFile(join(folder, 'b'), text);
}

describe('a folder that is made once', () => {
  it('is built by two at once without either seeing half of it', async () => {
    const target = join(base, 'race');
    let built = 0;
    const build = async (folder: string): Promise<void> => {
      built++;
      await fill(folder, String(built));
    };
    await Promise.all([folderMadeOnce(target, isComplete, build), folderMadeOnce(target, isComplete, build)]);
    expect(await readFile(join(target, 'a'), 'utf8')).toBe(await readFile(join(target, 'b'), 'utf8'));
    expect(readdirSync(base).filter((name) => name.startsWith('race'))).toEqual(['race']);
    await folderMadeOnce(target, isComplete, build);
    expect(built).toBe(2);
  });

  it('is built anew where something of it is missing', async () => {
    const target = join(base, 'damaged');
    mkdirSync(target);
    await writeFile(join(target, 'a'), 'old');
    await folderMadeOnce(target, isComplete, async (folder) => await fill(folder, 'new'));
    expect(await readFile(join(target, 'a'), 'utf8')).toBe('new');
  });

  it('leaves nothing behind when it cannot be built', async () => {
    const failing = folderMadeOnce(join(base, 'failed'), isComplete, async (folder) => {
      await writeFile(join(folder, 'a'), '');
      throw new Error('no network');
    });
    await expect(failing).rejects.toThrow('no network');
    expect(readdirSync(base).filter((name) => name.startsWith('failed'))).toEqual([]);
  });

  it('does away with what a killed process had begun', async () => {
    const target = join(base, 'abandoned');
    mkdirSync(`${target}.new-4194305-abcd`);
    mkdirSync(`${target}.new-${process.pid}-abcd`);
    await folderMadeOnce(target, isComplete, async (folder) => await fill(folder, 'x'));
    expect(readdirSync(base).filter((name) => name.startsWith('abandoned'))).toEqual(['abandoned', `abandoned.new-${process.pid}-abcd`]);
  });

  it('lies where the XDG variable says, if that is an absolute path', () => {
    expect(cacheFolder({ XDG_CACHE_HOME: '/somewhere' })).toBe('/somewhere/tidemark');
    expect(cacheFolder({ XDG_CACHE_HOME: 'relative' })).toMatch(/\.cache\/tidemark$/);
  });
});
