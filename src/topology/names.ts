import { TopologyError } from '../model/errors.ts';
import { topicNameFault } from '../model/topic-name.ts';

export function requireTopicName(name: unknown, where: string): asserts name is string {
  const fault = topicNameFault(name);
  if (fault !== undefined) throw new TopologyError(`${where}: the topic name ${JSON.stringify(name)} ${fault}`);
}

/** Names of steps become parts of topic and group names, so the same characters are allowed, as Kafka Streams has it. */
export function requireStepName(name: unknown): asserts name is string {
  const fault = topicNameFault(name);
  if (fault !== undefined) throw new TopologyError(`the step name ${JSON.stringify(name)} ${fault}`);
}
