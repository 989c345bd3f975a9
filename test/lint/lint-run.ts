import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../../', import.meta.url));

/** `line 7: eslint(no-console)`, per file. */
export type Findings = ReadonlyMap<string, readonly string[]>;

/** Lints a tree of its own under the repository's configuration, so that what the configuration says by path applies to it. */
export async function lintTree(copies: readonly string[], written: ReadonlyMap<string, string>): Promise<Findings> {
  const tree = await mkdtemp(join(tmpdir(), 'tidemark-lint-'));
  try {
    for (const name of ['.oxlintrc.json', 'lint', 'tsconfig.json', 'package.json'])
      await cp(join(root, name), join(tree, name), { recursive: true });
    await symlink(join(root, 'node_modules'), join(tree, 'node_modules'));
    for (const folder of copies) await cp(folder, tree, { recursive: true });
    for (const [file, text] of written) {
      await mkdir(dirname(join(tree, file)), { recursive: true });
      await writeFile(join(tree, file), text);
    }
    return findings(await oxlint(tree));
  } finally {
    await rm(tree, { recursive: true, force: true });
  }
}

/** What a fixture says of itself: `// fails: RULE...` at the end of a line, or `// fails-next: RULE...` above it. */
export async function expectations(folder: string): Promise<Findings> {
  const expected = new Map<string, string[]>();
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const file = join(entry.parentPath, entry.name);
    const lines = (await readFile(file, 'utf8')).split('\n');
    const marks = lines.flatMap((line, index) => {
      const mark = /\/\/ fails(-next)?: (.+)$/.exec(line);
      const at = index + (mark?.[1] === undefined ? 1 : 2);
      return mark?.[2]?.split(' ').map((rule) => `line ${at}: ${rule}`) ?? [];
    });
    expected.set(file.slice(folder.length + 1).replaceAll('\\', '/'), marks.toSorted());
  }
  return expected;
}

async function oxlint(tree: string): Promise<string> {
  const program = join(root, 'node_modules', 'oxlint', 'bin', 'oxlint');
  return await new Promise((resolve, reject) => {
    execFile(
      process.execPath,
      [program, '--format', 'json', 'src', 'topologies', 'test', 'bin'],
      { cwd: tree, timeout: 60_000, maxBuffer: 1 << 26 },
      (error, stdout, stderr) => {
        // It ends with 1 for findings, which are what this is for; without a report it has not run.
        if (stdout.trimStart().startsWith('{')) resolve(stdout);
        else reject(new Error(`oxlint gave no report: ${stderr || stdout || (error?.message ?? '')}`));
      },
    );
  });
}

interface Report {
  readonly diagnostics: readonly {
    readonly code?: string;
    readonly message: string;
    readonly filename: string;
    readonly labels: readonly { readonly span: { readonly line: number } }[];
  }[];
}

function findings(json: string): Findings {
  const found = new Map<string, string[]>();
  for (const { code, message, filename, labels } of (JSON.parse(json) as Report).diagnostics) {
    const line = labels[0]?.span.line ?? 0;
    const file = filename.replaceAll('\\', '/');
    found.set(file, [...(found.get(file) ?? []), `line ${line}: ${code ?? message}`].toSorted());
  }
  return found;
}
