import { setTimeout as sleep } from 'node:timers/promises';
import type { FaultRule, RuleBook } from './fault-rule.ts';
import { frames, type Handler, type ProxiedConnection } from './proxied-connection.ts';

const SSL_REQUEST = 80877103;
const GSS_REQUEST = 80877104;
const CANCEL_REQUEST = 80877102;
const SYNC = Buffer.from([0x53, 0, 0, 0, 4]);

/**
 * The Postgres protocol, version 3: finds the statement of a Query message, or of an Execute message through its portal and prepared
 * statement, and applies rules to it. The answer of a statement is everything up to the next ReadyForQuery.
 */
export function postgresHandlers(
  connection: ProxiedConnection,
  name: string,
  rules: RuleBook,
  count: (firstWord: string) => void,
): { request: Handler; response: Handler } {
  const { client, server } = connection;
  const statements = new Map<string, string>();
  const portals = new Map<string, string>();
  let started = false;
  /** How many ReadyForQuery are still to come: a client may send statements without waiting for the answers of those before. */
  let unanswered = 0;
  /** After `skip` more ReadyForQuery, the answers up to the next one belong to this rule. */
  let armed: { readonly rule: FaultRule; skip: number } | undefined;

  const statementOf = (type: string, frame: Buffer): string | undefined => {
    if (type === 'Q') return cString(frame, 5).text;
    if (type === 'E') return portals.get(cString(frame, 5).text) ?? '';
    if (type === 'P') {
      const name = cString(frame, 5);
      statements.set(name.text, cString(frame, name.end).text);
    } else if (type === 'B') {
      const portal = cString(frame, 5);
      portals.set(portal.text, statements.get(cString(frame, portal.end).text) ?? '');
    }
    return undefined;
  };

  const request = frames(
    (buffered) => (started ? messageLength(buffered) : buffered.length < 8 ? 0 : buffered.readInt32BE(0)),
    async (frame) => {
      if (!started) {
        const code = frame.readInt32BE(4);
        if (code === SSL_REQUEST || code === GSS_REQUEST) {
          await connection.write(client, Buffer.from('N'));
          return true;
        }
        started = code !== CANCEL_REQUEST;
        unanswered = 1;
        await connection.write(server, frame);
        return true;
      }
      const type = String.fromCharCode(frame[0] ?? 0);
      const query = statementOf(type, frame);
      if (query !== undefined) {
        count((/\w+/.exec(query)?.[0] ?? '').toUpperCase());
        const rule = rules.match({ query, server: name, frame });
        switch (rule?.action) {
          case 'closeBefore':
            await connection.writeLast();
            return false;
          case 'closeOnForward':
            await connection.writeLast(type === 'E' ? Buffer.concat([frame, SYNC]) : frame);
            return false;
          case 'dropRequest':
            return true;
          case 'answerError':
            throw new Error('answerError is for Kafka only');
          case 'delayRequest':
            await sleep(rule.ms ?? 1000);
            break;
          case 'closeAfter':
          case 'dropResponse':
          case 'delayResponse':
            armed = { rule, skip: unanswered };
            break;
          case 'count':
          case undefined:
        }
      }
      if (type === 'Q' || type === 'S') unanswered++;
      await connection.write(server, frame);
      return true;
    },
  );

  // Nothing before the start-up message needs cutting: the only answer then is the proxy's own.
  const response = frames(messageLength, async (frame) => {
    const readyForQuery = frame[0] === 0x5a;
    if (readyForQuery) unanswered--;
    if (armed !== undefined && armed.skip === 0) {
      const { rule } = armed;
      if (rule.action === 'delayResponse') {
        armed = undefined;
        await sleep(rule.ms ?? 1000);
      } else {
        if (!readyForQuery) return true;
        armed = undefined;
        if (rule.action === 'dropResponse') return true;
        connection.close();
        return false;
      }
    } else if (armed !== undefined && readyForQuery) {
      armed.skip--;
    }
    await connection.write(client, frame);
    return true;
  });
  return { request, response };
}

function messageLength(buffered: Buffer): number {
  return buffered.length < 5 ? 0 : 1 + buffered.readInt32BE(1);
}

function cString(frame: Buffer, start: number): { text: string; end: number } {
  const zero = frame.indexOf(0, start);
  return { text: frame.toString('utf8', start, zero), end: zero + 1 };
}
