import { defineConfig } from 'vitest/config';

/** What starts real services, once for a run: see the file. */
const services = {
  globalSetup: 'test/support/global-setup.ts',
  // `expect.poll` waits for what a server does: markers of a transaction, a rebalance. Vitest's default of 1 s is for memory.
  expect: { poll: { timeout: 15_000 } },
};

/** Alone in its group: nothing else competes for the cores while its time-outs run. */
function afterwards(groupOrder: number) {
  return { sequence: { groupOrder }, maxWorkers: 2 };
}

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/{unit,lint,repository}/**/*.test.ts'],
          exclude: ['test/lint/fixtures/**'],
          maxWorkers: 2,
          testTimeout: 20_000,
        },
      },
      {
        test: {
          name: 'types',
          include: [],
          maxWorkers: 2,
          // Errors outside these files are `npm run check:types`'s to report.
          typecheck: {
            enabled: true,
            only: true,
            include: ['test/types/**/*.test-d.ts'],
            tsconfig: 'tsconfig.json',
            ignoreSourceErrors: true,
          },
        },
      },
      {
        test: { name: 'golden', include: ['test/golden/**/*.test.ts'], maxWorkers: 2, testTimeout: 20_000 },
      },
      {
        test: {
          name: 'contract',
          include: ['test/contract/**/*.test.ts'],
          ...services,
          ...afterwards(1),
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
      {
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          ...services,
          ...afterwards(2),
          testTimeout: 120_000,
          hookTimeout: 120_000,
        },
      },
      {
        test: {
          name: 'long',
          include: ['test/long/**/*.test.ts'],
          ...services,
          ...afterwards(3),
          fileParallelism: false,
          maxWorkers: 1,
          testTimeout: 30 * 60_000,
          hookTimeout: 120_000,
        },
      },
    ],
  },
});
