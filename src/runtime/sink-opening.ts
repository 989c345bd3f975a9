import type { KafkaClient } from '../kafka/port.ts';
import type { Clock, Random } from '../model/clock.ts';
import { FatalError, SinkRetriableError } from '../model/errors.ts';
import type { FailPoints } from '../model/fail-point.ts';
import type { Log } from '../ops/log.ts';
import type { SinkCounters } from '../ops/metrics.ts';
import type { SinkWriter } from '../sink/port.ts';
import type { SinkStage } from '../topology/topology.ts';
import type { Backoff } from './backoff.ts';
import { errorCode, remedyFor } from './remedy.ts';
import type { SinkHealth } from './sink-health.ts';
import type { SinkTuning } from './sink-tuning.ts';

export interface SinkOpeningParts {
  readonly stage: SinkStage;
  readonly applicationId: string;
  readonly client: KafkaClient;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly failPoints?: FailPoints | undefined;
  readonly tuning: SinkTuning;
  readonly counters: SinkCounters;
  readonly health: SinkHealth;
  readonly backoff: Backoff;
  /** Ends the waiting. */
  readonly stop: AbortSignal;
}

const CLOSE_TIMEOUT_MS = 1_000;

/** A misspelt topic shows at the start. Throws FatalError that names it. */
export async function requireSourceTopics(
  { client, stage, clock, log, backoff, stop }: SinkOpeningParts,
  topics: readonly string[],
): Promise<void> {
  if (topics.length === 0) return;
  const admin = client.admin();
  try {
    while (!stop.aborted) {
      try {
        const known = await admin.partitionCounts(topics);
        const missing = topics.filter((topic) => !known.has(topic));
        if (missing.length === 0) return;
        throw new FatalError(
          `sink stage '${stage.name}' reads topics that do not exist: ${missing.join(', ')}. Create them, or correct their names in the topology`,
        );
      } catch (error) {
        if (remedyFor(error, 'init') !== 'try-again') throw error;
        const delay = backoff.failed(error, 'checking topics', clock.monotonic());
        log.warn({ code: errorCode(error), reason: String(error) }, 'the topics could not be checked yet');
        await clock.sleep(delay, stop).catch(() => undefined);
      }
    }
  } finally {
    await admin.close(CLOSE_TIMEOUT_MS);
  }
}

/** Waits for a target that is not there yet. Undefined: stopped meanwhile. */
export async function openSink(parts: SinkOpeningParts): Promise<SinkWriter<unknown, unknown> | undefined> {
  const { stage, applicationId, log, failPoints, clock, random, tuning, counters, health, stop } = parts;
  const context = { applicationId, stage: stage.name, log, ...(failPoints === undefined ? {} : { failPoints }) };
  for (let delay = tuning.retryDelayMs; !stop.aborted; delay = Math.min(delay * 2, tuning.maxRetryDelayMs)) {
    try {
      const writer = await stage.sink.sink.open(context);
      health.succeeded(stage);
      return writer;
    } catch (error) {
      if (!(error instanceof SinkRetriableError)) throw error;
      counters.retries++;
      health.failed(stage, error);
      await clock.sleep(delay * (0.5 + random() / 2), stop).catch(() => undefined);
    }
  }
  return undefined;
}
