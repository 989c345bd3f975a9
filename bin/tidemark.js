#!/usr/bin/env node
import { existsSync } from 'node:fs';

const built = new URL('../dist/cli/main.js', import.meta.url);
const source = new URL('../src/cli/main.ts', import.meta.url);

if (existsSync(built)) {
  await import(built.href);
} else {
  // A clone that has not been built. Node runs TypeScript by itself from 22.18 on.
  if (!process.features.typescript) (await import('tsx/esm/api')).register();
  await import(source.href);
}
