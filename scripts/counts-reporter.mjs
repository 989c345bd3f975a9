import { writeFileSync } from 'node:fs';

/** A vitest reporter that leaves the numbers of a run in the file `TIDEMARK_TEST_COUNTS`, for the closing line of `npm test`. */
export default class CountsReporter {
  onTestRunEnd(modules, unhandledErrors) {
    const counts = { passed: 0, failed: unhandledErrors.length, skipped: 0 };
    for (const module of modules) {
      // A file that cannot be loaded, and a hook that throws, leave tests that never ran: each error counts as one failure.
      counts.failed += module.errors().length;
      for (const suite of module.children.allSuites()) counts.failed += suite.errors().length;
      for (const test of module.children.allTests()) counts[outcome(test.result().state)] += 1;
    }
    writeFileSync(process.env.TIDEMARK_TEST_COUNTS, JSON.stringify(counts));
  }
}

/** `pending`: the run ended before the test did. */
function outcome(state) {
  return state === 'pending' ? 'failed' : state;
}
