import type { GroupConsumer } from '../kafka/port.ts';
import { FatalError, SinkFatalError } from '../model/errors.ts';
import { type TopicPartition, topicPartitionKey } from '../model/topic-partition.ts';
import type { Log } from '../ops/log.ts';
import type { OffsetOutOfRange } from './offset-range.ts';
import type { StartFrom } from './start-position.ts';

export interface LogBounds {
  readonly start: bigint;
  readonly end: bigint;
}

/** Where the group's offsets would begin in a partition. */
export interface GroupStart {
  readonly place: TopicPartition;
  readonly offset: bigint;
  /** Whether the group has this offset. */
  readonly committed: boolean;
}

export interface SinkPositionsParts {
  readonly applicationId: string;
  readonly stage: string;
  readonly groupId: string;
  readonly startFrom: StartFrom;
  readonly offsetOutOfRange: OffsetOutOfRange;
  readonly log: Log;
}

/** Decides where a stage reads on: between what the group, the sink and the log say. */
export class SinkPositions {
  readonly #parts: SinkPositionsParts;

  constructor(parts: SinkPositionsParts) {
    this.#parts = parts;
  }

  /** Throws what the consumer throws, and FatalError where there is no offset and `startFrom` does not allow that. */
  async groupStarts(consumer: GroupConsumer, places: readonly TopicPartition[]): Promise<readonly GroupStart[]> {
    const committed = new Map<string, bigint>();
    for (const { topic, partition, offset } of await consumer.committed(places)) committed.set(topicPartitionKey(topic, partition), offset);
    const without = places.filter(({ topic, partition }) => !committed.has(topicPartitionKey(topic, partition)));
    const bounds = without.length === 0 ? new Map<string, LogBounds>() : await consumer.logOffsets(without);
    return places.map((place) => {
      const key = topicPartitionKey(place.topic, place.partition);
      const offset = committed.get(key);
      return offset === undefined
        ? { place, offset: this.#first(place, bounds.get(key)), committed: false }
        : { place, offset, committed: true };
    });
  }

  /** Where to read from for what is applied up to `position`: there, or where the policy says if the log does not have it any more. */
  readFrom({ topic, partition }: TopicPartition, position: bigint, { start, end }: LogBounds): bigint {
    const { stage, applicationId, offsetOutOfRange, log } = this.#parts;
    const where = `stage '${stage}': ${topic}-${partition} is applied up to offset ${position}`;
    if (position > end) {
      // No policy helps: records of the new log would be taken for those of the old one.
      throw new SinkFatalError(
        `${where}, but its log ends at ${end}. Either the topic was deleted and made anew, or this is another Kafka cluster than the one that the sink was filled from. ` +
          `Going on would skip records without a trace. If the topic is new, remove the sink's position of it (in Postgres the row of application '${applicationId}' and stage ` +
          `'${stage}' in table fences, and idempotency keys that are made of coordinates) or use another application id; then start again`,
      );
    }
    if (position >= start) return position;
    if (offsetOutOfRange === 'error') {
      throw new FatalError(
        `${where}, but its log begins at ${start}: records were deleted before they were applied. Set offsetOutOfRange to 'earliest' or 'latest' to go on with this gap`,
      );
    }
    const offset = offsetOutOfRange === 'earliest' ? start : end;
    log.warn({ topic, partition, position, offset }, 'records were deleted before they were applied: going on with a gap');
    return offset;
  }

  #first({ topic, partition }: TopicPartition, bounds: LogBounds | undefined): bigint {
    if (bounds === undefined) throw new FatalError(`the bounds of ${topic}-${partition} are unknown to the brokers: does the topic exist?`);
    switch (this.#parts.startFrom) {
      case 'earliest':
        return bounds.start;
      case 'latest':
        return bounds.end;
      case 'error':
        throw new FatalError(
          `the group '${this.#parts.groupId}' has no committed offset for ${topic}-${partition}, and startFrom is 'error': commit offsets for the group, or set startFrom to 'earliest' or 'latest'`,
        );
    }
  }
}
