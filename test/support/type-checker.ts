import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

const ROOT = resolve(import.meta.dirname, '../..');
/** The type checker is a native program of a few hundred milliseconds; a machine that needs longer than this is stuck. */
const DEADLINE_MS = 60_000;

export interface TypeFault {
  readonly file: string;
  readonly line: number;
  readonly message: string;
}

/** A folder of source files which is checked with the project's own settings, and removed when it is disposed of. */
export class CheckedFolder {
  readonly path: string;

  constructor() {
    const parent = join(ROOT, '.tidemark');
    mkdirSync(parent, { recursive: true });
    this.path = mkdtempSync(join(parent, 'checked-'));
  }

  /** Returns the file's whole path. */
  write(name: string, source: string): string {
    const path = join(this.path, name);
    writeFileSync(path, source);
    return path;
  }

  /** What the type checker finds in the files of this folder. */
  async check(): Promise<readonly TypeFault[]> {
    this.write(
      'tsconfig.json',
      JSON.stringify({ extends: '../../tsconfig.json', compilerOptions: { noUnusedLocals: false }, include: ['*.ts'] }),
    );
    const faults: TypeFault[] = [];
    for (const line of (await this.#run()).split('\n')) {
      const match = /^(?:.*[\\/])?([^\\/]+\.ts)\((\d+),\d+\): error (.*)$/.exec(line);
      if (match?.[1] !== undefined) faults.push({ file: match[1], line: Number(match[2]), message: match[3] ?? '' });
    }
    return faults;
  }

  async #run(): Promise<string> {
    const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
    try {
      return (
        await promisify(execFile)(process.execPath, [tsc, '--noEmit', '--pretty', 'false', '-p', this.path], { timeout: DEADLINE_MS })
      ).stdout;
    } catch (error) {
      const { code, stdout, stderr } = error as { code?: unknown; stdout?: string; stderr?: string };
      // 1 and 2 are the answers of a checker that has found something.
      if ((code === 1 || code === 2) && stdout) return stdout;
      throw new Error(`the type checker did not run: ${stderr ?? ''}`, { cause: error });
    }
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}
