/**
 * Makes `npm run demo` and `npm test` work in a fresh clone: installs what package-lock.json asks for, unless it is there. Depends on Node
 * alone, asks nothing, and writes to standard error only, so that what follows owns standard output.
 */
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const waitMs = 15 * 60_000;

export async function ensureInstalled(root = dirname(dirname(fileURLToPath(import.meta.url)))) {
  if (isInstalled(root)) return;
  const unlock = await lock(join(root, '.tidemark', 'install.lock'));
  try {
    // Another process may have done it while this one waited.
    if (isInstalled(root)) return;
    console.error('Installing dependencies (npm ci), once for this lockfile ...');
    await npmCi(root);
    console.error('Dependencies are installed.');
  } finally {
    unlock();
  }
}

/** Whether npm's own record of node_modules holds every package of the lockfile that this platform needs, in its version. */
function isInstalled(root) {
  const wanted = packages(join(root, 'package-lock.json'));
  const present = packages(join(root, 'node_modules', '.package-lock.json'));
  if (wanted === undefined) throw new Error(`${join(root, 'package-lock.json')} cannot be read: restore it from the repository`);
  if (present === undefined) return false;
  return Object.entries(wanted).every(
    ([path, entry]) => path === '' || entry.optional === true || entry.devOptional === true || present[path]?.version === entry.version,
  );
}

function packages(file) {
  try {
    return JSON.parse(readFileSync(file, 'utf8')).packages;
  } catch {
    // Missing, or cut off while it was written.
    return undefined;
  }
}

/**
 * `--include=dev` since NODE_ENV=production would leave out the test runner. No dependency needs its install script, and npm's versions
 * differ in whether they run them.
 */
async function npmCi(root) {
  const args = ['ci', '--include=dev', '--ignore-scripts', '--no-audit', '--no-fund'];
  const child = spawn('npm', args, { cwd: root, stdio: ['ignore', process.stderr, process.stderr], shell: process.platform === 'win32' });
  const started = Date.now();
  // npm says nothing while it works unless it has a terminal.
  const progress = setInterval(() => console.error(`... ${Math.round((Date.now() - started) / 1000)} s`), 5000);
  const code = await new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  }).finally(() => clearInterval(progress));
  if (code !== 0) throw new Error(`npm ci failed with exit code ${code}: its output above says why`);
}

/** One installation at a time for a checkout. A lock whose process is gone is taken over. */
async function lock(file) {
  mkdirSync(dirname(file), { recursive: true });
  const started = Date.now();
  for (let told = false; Date.now() - started < waitMs; await sleep(200)) {
    try {
      writeFileSync(file, String(process.pid), { flag: 'wx' });
      return () => rmSync(file, { force: true });
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    const owner = readOwner(file);
    if (owner !== undefined && !isAlive(owner)) discard(file);
    else if (!told) {
      told = true;
      console.error('Another process installs the dependencies: waiting for it ...');
    }
  }
  throw new Error(`${file} has been held for ${waitMs / 60_000} minutes: if no other installation is running, delete it`);
}

function readOwner(file) {
  try {
    const pid = Number(readFileSync(file, 'utf8'));
    // Zero: it was made this moment and its process id is not in it yet.
    return pid > 0 ? pid : undefined;
  } catch {
    return undefined;
  }
}

function discard(file) {
  // Renamed first: of several processes that find the same dead lock only one moves it.
  const aside = `${file}.${process.pid}`;
  try {
    renameSync(file, aside);
    rmSync(aside);
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    await ensureInstalled();
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
