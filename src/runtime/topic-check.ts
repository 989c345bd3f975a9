import type { Admin, Producer } from '../kafka/port.ts';
import { FatalError } from '../model/errors.ts';
import type { Log } from '../ops/log.ts';
import { FailurePolicies } from './record-failure.ts';
import type { Settings } from './options.ts';
import type { TaskPlan } from './task-plan.ts';

/**
 * Sees to it that all topics with fixed names are there before anything is read, so that a misspelt one shows at the start and not with the first
 * record. Throws FatalError that names what is missing.
 */
export async function checkTopics(admin: Admin, producer: Producer, plan: TaskPlan, settings: Settings, log: Log): Promise<void> {
  const { deadLetterTopic, applicationId } = settings;
  const policies = new FailurePolicies(settings.onDeserialisationError, settings.onProcessingError);
  const deadLetters = policies.mayDeadLetter ? [deadLetterTopic] : [];
  const needed = [...plan.topics, ...plan.outputTopics];
  const known = await admin.partitionCounts([...new Set([...needed, ...deadLetters])]);
  const missing = needed.filter((topic) => !known.has(topic));
  if (missing.length > 0) {
    throw new FatalError(
      `application '${applicationId}' needs topics that do not exist: ${[...new Set(missing)].join(', ')}. Create them, or correct their names in the topology`,
    );
  }
  if (deadLetters.some((topic) => !known.has(topic))) {
    await admin.createTopics([{ topic: deadLetterTopic, partitions: 1 }]);
    log.info({ topic: deadLetterTopic }, 'dead letter topic created');
  }
  await producer.loadTopics([...new Set([...plan.outputTopics, ...deadLetters])]);
}
