import type { GroupConsumer, OffsetToCommit } from '../kafka/port.ts';
import type { FailPoints } from '../model/fail-point.ts';
import type { SinkPartition } from './sink-partition.ts';

interface CommitRequest {
  readonly partition: SinkPartition;
  readonly offset: bigint;
  readonly resolve: (owner: boolean) => void;
}

/** The group's offsets of a sink stage. Partitions ask beside the worker's loop; only the loop commits. */
export class SinkOffsets {
  readonly #failPoints: FailPoints | undefined;
  readonly #wake: () => void;
  readonly #requests: CommitRequest[] = [];

  constructor(failPoints: FailPoints | undefined, wake: () => void) {
    this.#failPoints = failPoints;
    this.#wake = wake;
  }

  get requested(): boolean {
    return this.#requests.length > 0;
  }

  /** Resolves when the offset is committed; false: this member is not the owner of the partition any more. */
  async request(partition: SinkPartition, offset: bigint): Promise<boolean> {
    if (partition.closed) return false;
    return await new Promise((resolve) => {
      this.#requests.push({ partition, offset, resolve });
      this.#wake();
    });
  }

  /** The partition was given up. */
  refuse(partition: SinkPartition): void {
    for (const request of this.#requests.filter((each) => each.partition === partition)) {
      this.#requests.splice(this.#requests.indexOf(request), 1);
      request.resolve(false);
    }
  }

  /** Commits what is waited for. What it throws is the consumer's; the requests stay. */
  async commitRequested(consumer: GroupConsumer): Promise<void> {
    const requests = [...this.#requests];
    if (requests.length === 0) return;
    await consumer.commit(requests.map(({ partition, offset }) => ({ topic: partition.topic, partition: partition.partition, offset })));
    await this.#failPoints?.('sink-after-offsets');
    for (const request of requests) {
      const index = this.#requests.indexOf(request);
      if (index < 0) continue;
      this.#requests.splice(index, 1);
      request.partition.committed = request.offset;
      request.resolve(true);
    }
  }

  /** Commits how far each partition is applied, where the group does not know it yet. */
  async commitApplied(consumer: GroupConsumer, partitions: Iterable<SinkPartition>): Promise<void> {
    const moved: { readonly partition: SinkPartition; readonly commit: OffsetToCommit }[] = [];
    for (const partition of partitions) {
      const { topic, applied } = partition;
      if (applied === undefined || applied === partition.committed) continue;
      moved.push({ partition, commit: { topic, partition: partition.partition, offset: applied } });
    }
    if (moved.length === 0) return;
    await consumer.commit(moved.map(({ commit }) => commit));
    for (const { partition, commit } of moved) partition.committed = commit.offset;
    await this.#failPoints?.('sink-after-offsets');
  }
}
