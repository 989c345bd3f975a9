import { type Header, textHeader } from '../model/headers.ts';
import type { RecordFailure } from './record-failure.ts';

const PREFIX = 'tidemark-';
const MAX_MESSAGE_LENGTH = 2000;

/** The headers of a dead letter: those of the record, and what is known of its failure. Those of an earlier failure are replaced. */
export function deadLetterHeaders(failure: RecordFailure, applicationId: string, failedAt: number): readonly Header[] {
  const { record, error, node } = failure;
  const headers = record.headers.filter((header) => !header.key.startsWith(PREFIX));
  const add = (name: string, value: string): void => void headers.push(textHeader(PREFIX + name, value));
  add('topic', record.topic);
  add('partition', String(record.partition));
  add('offset', String(record.offset));
  add('timestamp', String(record.timestamp));
  add('error-class', classOf(error));
  add('error-message', error.message.slice(0, MAX_MESSAGE_LENGTH));
  add('error-kind', failure.kind);
  if (node !== undefined) add('node', node);
  add('failed-at', String(failedAt));
  add('application-id', applicationId);
  return headers;
}

/** A step's error wraps what the application's function threw, which is what its author looks for. */
function classOf(error: Error): string {
  return error.cause instanceof Error ? error.cause.name : error.name;
}
