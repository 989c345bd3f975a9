import { type Logger, type LoggerOptions, pino } from 'pino';

/** What the engine writes its life-cycle events to. A pino logger is one. */
export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  child(bindings: Record<string, unknown>): Log;
}

/** A pino logger (or anything with its methods), or options for one. */
export type LogOption = Log | Logger | LoggerOptions;

/** Default: pino on standard output, level `info`. */
export function openLog(option: LogOption | undefined): Log {
  if (option !== undefined && typeof (option as Partial<Log>).child === 'function') return option as Log;
  return pino({ name: 'tidemark', ...(option as LoggerOptions | undefined) });
}
