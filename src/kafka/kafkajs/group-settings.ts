import { ConfigurationError } from '../../model/errors.ts';
import type { GroupConsumerOptions } from '../port.ts';
import { milliseconds } from './config.ts';

/** The durations of `GroupConsumerOptions` with every default filled in. */
export interface GroupSettings {
  readonly sessionTimeoutMs: number;
  readonly heartbeatIntervalMs: number;
  readonly maxPollIntervalMs: number;
  readonly metadataMaxAgeMs: number;
  readonly requestTimeoutMs: number;
}

const HEARTBEATS_PER_SESSION = 3;

/** Throws ConfigurationError that names the option. */
export function groupSettings(options: GroupConsumerOptions, requestTimeoutMs: number): GroupSettings {
  const { subscription, groupId, groupInstanceId } = options;
  if (groupId === '') throw new ConfigurationError("'groupId' is empty. Give the group a name.");
  if (groupInstanceId === '') throw new ConfigurationError("'groupInstanceId' is empty. Leave it out or give it a name.");
  if (subscription.topics.length === 0 && (subscription.patterns ?? []).length === 0) {
    throw new ConfigurationError("'subscription' is empty. Give at least one topic or pattern.");
  }
  const sessionTimeoutMs = whole('sessionTimeoutMs', options.sessionTimeoutMs, 45_000);
  const longestMs = sessionTimeoutMs / HEARTBEATS_PER_SESSION;
  const heartbeatIntervalMs = whole('heartbeatIntervalMs', options.heartbeatIntervalMs, Math.min(3_000, Math.floor(longestMs)));
  if (heartbeatIntervalMs > longestMs) {
    throw new ConfigurationError(
      `'heartbeatIntervalMs' is ${heartbeatIntervalMs}, more than a third of 'sessionTimeoutMs' (${sessionTimeoutMs}): one lost heartbeat could end the session.`,
    );
  }
  return {
    sessionTimeoutMs,
    heartbeatIntervalMs,
    maxPollIntervalMs: whole('maxPollIntervalMs', options.maxPollIntervalMs, 300_000),
    metadataMaxAgeMs: whole('metadataMaxAgeMs', options.metadataMaxAgeMs, 60_000),
    requestTimeoutMs: whole('requestTimeoutMs', options.requestTimeoutMs, requestTimeoutMs),
  };
}

function whole(option: string, value: number | undefined, defaultMs: number): number {
  return Math.ceil(milliseconds(option, value, defaultMs));
}
