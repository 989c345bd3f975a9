#!/usr/bin/env node
import { existsSync } from 'node:fs';

const built = new URL('../dist/cli/main.js', import.meta.url);
const source = new URL('../src/cli/main.ts', import.meta.url);

// A clone runs its sources, so that it never runs an older build of them; the package has no tsconfig.json.
if (existsSync(new URL('../tsconfig.json', import.meta.url))) {
  // Node runs TypeScript by itself from 22.18 on.
  if (!process.features.typescript) (await import('tsx/esm/api')).register();
  await import(source.href);
} else {
  await import(built.href);
}
