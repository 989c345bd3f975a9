/** One partition of one topic. */
export interface TopicPartition {
  readonly topic: string;
  readonly partition: number;
}

/** A map key for a partition. Topic names cannot contain a slash, so it is unambiguous. */
export function topicPartitionKey(topic: string, partition: number): string {
  return `${topic}/${partition}`;
}

/** A partition together with the offset of the next record to read from it. */
export interface PartitionOffset extends TopicPartition {
  readonly offset: bigint;
}
