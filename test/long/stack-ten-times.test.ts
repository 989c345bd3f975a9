import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { isFree } from '../../src/devstack/port.ts';
import { identify } from '../../src/devstack/process-identity.ts';
import { startStack } from '../../src/devstack/stack.ts';
import { freshDirectory, portsOf, processesOf, removeDirectories } from '../support/stack-directory.ts';

afterEach(removeDirectories);

describe.skipIf(process.platform !== 'linux')('a local stack', () => {
  it('started and stopped ten times in a row leaves no process, no port and no folder behind', { timeout: 300_000 }, async () => {
    const directory = freshDirectory();
    for (let round = 1; round <= 10; round++) {
      const stack = await startStack({ directory, ephemeral: true, sources: ['local'] });
      const during = processesOf(directory);
      expect(during.length).toBeGreaterThan(2);
      await stack.stop();
      expect(processesOf(directory)).toEqual([]);
      await vi.waitUntil(() => during.every((pid) => identify(pid) === undefined), { timeout: 10_000 });
      expect(await Promise.all(portsOf(stack).map(isFree))).toEqual([true, true]);
      expect(readdirSync(join(directory, '.tidemark'))).toEqual([]);
    }
  });
});
