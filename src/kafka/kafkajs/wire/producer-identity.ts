/** What the broker knows a producer by, from InitProducerId on. A higher epoch of the same id shuts out all requests of a lower one. */
export interface ProducerIdentity {
  readonly producerId: bigint;
  readonly producerEpoch: number;
}
