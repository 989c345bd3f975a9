/**
 * `npm test`: installs if needed, runs vitest, and ends with one line `N passed, N failed[, N skipped]`, whatever happens. Arguments go to
 * vitest; without `--project` every project runs but `long`.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ensureInstalled } from './ensure-installed.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const folder = mkdtempSync(join(tmpdir(), 'tidemark-test-'));
const counts = { passed: 0, failed: 0, skipped: 0 };
let exitCode = 1;

try {
  await ensureInstalled(root);
  exitCode = await vitest(process.argv.slice(2), join(folder, 'counts.json'));
  Object.assign(counts, JSON.parse(readFileSync(join(folder, 'counts.json'), 'utf8')));
} catch (error) {
  console.error(`The test run did not finish: ${error.message}`);
  exitCode ||= 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
if (counts.failed > 0) exitCode ||= 1;
// A run that broke off, or that ran nothing, has failed even if no test did.
if (exitCode !== 0 || counts.passed === 0) {
  counts.failed ||= 1;
  exitCode ||= 1;
}
const skipped = counts.skipped > 0 ? `, ${counts.skipped} skipped` : '';
console.log(`${counts.passed} passed, ${counts.failed} failed${skipped}`);
process.exitCode = exitCode;

/** Its exit code; 1 where a signal ended it. */
async function vitest(args, countsFile) {
  const projects = args.some((arg) => arg.startsWith('--project')) ? [] : ['--project', '!long'];
  const reporters = ['default', 'scripts/counts-reporter.mjs'].map((name) => `--reporter=${name}`);
  const child = spawn(process.execPath, ['node_modules/vitest/vitest.mjs', 'run', ...reporters, ...projects, ...args], {
    cwd: root,
    stdio: ['ignore', 'inherit', 'inherit'],
    env: { ...process.env, TIDEMARK_TEST_COUNTS: countsFile },
  });
  // Vitest ends and stops the services that it started; this process stays for the closing line. A terminal sends Ctrl-C to both.
  process.on('SIGINT', () => process.stdin.isTTY || child.kill('SIGINT'));
  process.on('SIGTERM', () => child.kill('SIGTERM'));
  return await new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve(code ?? 1));
  });
}
