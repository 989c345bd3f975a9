import { WireReader } from '../../src/kafka/kafkajs/wire/reader.ts';
import { WireWriter } from '../../src/kafka/kafkajs/wire/writer.ts';

/** The header of a Kafka request and its body. */
export interface KafkaRequest {
  readonly api: string;
  readonly apiKey: number;
  readonly apiVersion: number;
  readonly correlationId: number;
  readonly clientId: string | null;
  readonly body: Buffer;
}

/** Where a proxy stands in for a broker. */
export type AdvertisedAddress = (host: string, port: number) => Promise<{ host: string; port: number }>;

const API_NAMES = new Map([
  [0, 'Produce'],
  [1, 'Fetch'],
  [2, 'ListOffsets'],
  [3, 'Metadata'],
  [8, 'OffsetCommit'],
  [9, 'OffsetFetch'],
  [10, 'FindCoordinator'],
  [11, 'JoinGroup'],
  [12, 'Heartbeat'],
  [13, 'LeaveGroup'],
  [14, 'SyncGroup'],
  [18, 'ApiVersions'],
  [19, 'CreateTopics'],
  [20, 'DeleteTopics'],
  [22, 'InitProducerId'],
  [24, 'AddPartitionsToTxn'],
  [25, 'AddOffsetsToTxn'],
  [26, 'EndTxn'],
  [28, 'TxnOffsetCommit'],
]);

/** The first version of each api with tagged fields (KIP-482); its header has them too. */
const FLEXIBLE_FROM = new Map([
  ['Produce', 9],
  ['Fetch', 12],
  ['ListOffsets', 6],
  ['Metadata', 9],
  ['OffsetCommit', 8],
  ['OffsetFetch', 6],
  ['FindCoordinator', 3],
  ['JoinGroup', 6],
  ['Heartbeat', 4],
  ['LeaveGroup', 4],
  ['SyncGroup', 4],
  ['InitProducerId', 2],
  ['AddPartitionsToTxn', 3],
  ['AddOffsetsToTxn', 3],
  ['EndTxn', 3],
  ['TxnOffsetCommit', 3],
]);

function isFlexible(api: string, version: number): boolean {
  return version >= (FLEXIBLE_FROM.get(api) ?? Number.POSITIVE_INFINITY);
}

export function parseRequest(frame: Buffer): KafkaRequest {
  const reader = new WireReader(frame, 'request');
  reader.int32('size');
  const apiKey = reader.int16('api_key');
  const apiVersion = reader.int16('api_version');
  const correlationId = reader.int32('correlation_id');
  const clientId = reader.nullableString('client_id');
  const api = API_NAMES.get(apiKey) ?? String(apiKey);
  if (isFlexible(api, apiVersion)) reader.skipTags('header');
  return { api, apiKey, apiVersion, correlationId, clientId, body: reader.raw(reader.remaining) };
}

function frameOf(correlationId: number, flexible: boolean, write: (writer: WireWriter) => void): Buffer {
  const writer = new WireWriter(256);
  writer.int32(0).int32(correlationId);
  if (flexible) writer.tags();
  write(writer);
  return writer.patchInt32(0, writer.position - 4).toBuffer();
}

/** The frame of an answer of Metadata or FindCoordinator, with every broker's address replaced. Undefined for other apis. */
export async function rewriteAddresses(request: KafkaRequest, frame: Buffer, advertised: AdvertisedAddress): Promise<Buffer | undefined> {
  const { api, apiVersion, correlationId } = request;
  if (api !== 'Metadata' && api !== 'FindCoordinator') return undefined;
  const flexible = isFlexible(api, apiVersion);
  const reader = new WireReader(frame, `${api} v${apiVersion} answer`);
  reader.int32('size');
  reader.int32('correlation_id');
  if (flexible) reader.skipTags('header');
  const replace = await advertisedIn(reader, api, apiVersion, advertised);
  return frameOf(correlationId, flexible, (writer) => {
    replace(writer);
    writer.raw(reader.raw(reader.remaining));
  });
}

/** Reads as far as the addresses go, and gives a function that writes the same with the addresses replaced. */
async function advertisedIn(
  reader: WireReader,
  api: 'Metadata' | 'FindCoordinator',
  version: number,
  advertised: AdvertisedAddress,
): Promise<(writer: WireWriter) => void> {
  if (api === 'Metadata') {
    const flexible = version >= 9;
    const throttle = version >= 3 ? reader.int32() : undefined;
    const readBroker = (r: WireReader) => {
      const broker = {
        nodeId: r.int32(),
        host: flexible ? r.compactString() : r.string(),
        port: r.int32(),
        rack: version < 1 ? undefined : flexible ? r.compactNullableString() : r.nullableString(),
      };
      if (flexible) r.skipTags();
      return broker;
    };
    const brokers = flexible ? reader.compactArray(readBroker) : reader.array(readBroker);
    const moved = await Promise.all(brokers.map(async (broker) => ({ ...broker, ...(await advertised(broker.host, broker.port)) })));
    return (writer) => {
      if (throttle !== undefined) writer.int32(throttle);
      if (flexible) {
        writer.compactArray(moved, (w, b) =>
          w
            .int32(b.nodeId)
            .compactString(b.host)
            .int32(b.port)
            .compactNullableString(b.rack ?? null)
            .tags(),
        );
      } else {
        writer.array(moved, (w, b) => {
          w.int32(b.nodeId).string(b.host).int32(b.port);
          if (b.rack !== undefined) w.nullableString(b.rack);
        });
      }
    };
  }
  if (version >= 4) {
    const throttle = reader.int32();
    const coordinators = reader.compactArray((r) => {
      const key = r.compactString();
      const nodeId = r.int32();
      const host = r.compactString();
      const port = r.int32();
      const errorCode = r.int16();
      const message = r.compactNullableString();
      r.skipTags();
      return { key, nodeId, host, port, errorCode, message };
    });
    const moved = await Promise.all(
      coordinators.map(async (each) => (each.host === '' ? each : { ...each, ...(await advertised(each.host, each.port)) })),
    );
    return (writer) =>
      writer
        .int32(throttle)
        .compactArray(moved, (w, c) =>
          w
            .compactString(c.key)
            .int32(c.nodeId)
            .compactString(c.host)
            .int32(c.port)
            .int16(c.errorCode)
            .compactNullableString(c.message)
            .tags(),
        );
  }
  const throttle = version >= 1 ? reader.int32() : undefined;
  const errorCode = reader.int16();
  const message = version < 1 ? null : version >= 3 ? reader.compactNullableString() : reader.nullableString();
  const nodeId = reader.int32();
  const found = { host: version >= 3 ? reader.compactString() : reader.string(), port: reader.int32() };
  const { host, port } = found.host === '' ? found : await advertised(found.host, found.port);
  return (writer) => {
    if (throttle !== undefined) writer.int32(throttle);
    writer.int16(errorCode);
    if (version >= 3) writer.compactNullableString(message).int32(nodeId).compactString(host);
    else if (version >= 1) writer.nullableString(message).int32(nodeId).string(host);
    else writer.int32(nodeId).string(host);
    writer.int32(port);
  };
}

/** The answer that refuses a request with an error code, as a broker would give it. Throws for an api that this proxy cannot answer. */
export function refuse(request: KafkaRequest, errorCode: number): Buffer {
  const { api, apiVersion: version, correlationId, body } = request;
  const flexible = isFlexible(api, version);
  const answer = (write: (writer: WireWriter) => void): Buffer =>
    frameOf(correlationId, flexible, (writer) => {
      write(writer);
      if (flexible) writer.tags();
    });
  switch (api) {
    case 'EndTxn':
      return answer((writer) => {
        writer.int32(0).int16(errorCode);
        if (version >= 5) writer.int64(-1n).int16(-1);
      });
    case 'AddOffsetsToTxn':
      return answer((writer) => writer.int32(0).int16(errorCode));
    case 'Heartbeat':
      return answer((writer) => {
        if (version >= 1) writer.int32(0);
        writer.int16(errorCode);
      });
    case 'InitProducerId':
      return answer((writer) => writer.int32(0).int16(errorCode).int64(-1n).int16(-1));
    case 'AddPartitionsToTxn':
      return answer((writer) => {
        writer.int32(0);
        perPartition(writer, flexible, addedPartitions(body, version), (w) => w.int16(errorCode));
      });
    case 'TxnOffsetCommit':
      return answer((writer) => {
        writer.int32(0);
        perPartition(writer, flexible, committedPartitions(body, version), (w) => w.int16(errorCode));
      });
    case 'Produce':
      return answer((writer) => {
        perPartition(writer, flexible, producedPartitions(body, version), (w) => {
          w.int16(errorCode).int64(-1n).int64(-1n);
          if (version >= 5) w.int64(-1n);
          if (version >= 8 && flexible) w.compactArray([], () => {}).compactNullableString(null);
          else if (version >= 8) w.array([], () => {}).nullableString(null);
        });
        writer.int32(0);
      });
    case 'Fetch':
      return answer((writer) => {
        writer.int32(0);
        if (version >= 7) writer.int16(0).int32(0);
        perPartition(writer, flexible, fetchedPartitions(body, version), (w) => {
          w.int16(errorCode).int64(-1n).int64(-1n);
          if (version >= 5) w.int64(-1n);
          w.array([], () => {});
          if (version >= 11) w.int32(-1);
          w.bytes(Buffer.alloc(0));
        });
      });
    default:
      throw new Error(`answerError knows no ${api} v${version}; use dropRequest or closeBefore, or teach it`);
  }
}

interface RequestedTopic {
  readonly topic: string;
  readonly partitions: readonly number[];
}

function perPartition(writer: WireWriter, flexible: boolean, topics: readonly RequestedTopic[], rest: (writer: WireWriter) => void): void {
  if (!flexible) {
    writer.array(topics, (w, { topic, partitions }) => {
      w.string(topic).array(partitions, (each, partition) => rest(each.int32(partition)));
    });
    return;
  }
  writer.compactArray(topics, (w, { topic, partitions }) => {
    w.compactString(topic).compactArray(partitions, (each, partition) => {
      rest(each.int32(partition));
      each.tags();
    });
    w.tags();
  });
}

function requestedTopics(reader: WireReader, flexible: boolean, partition: (reader: WireReader) => number): RequestedTopic[] {
  const read = (r: WireReader): RequestedTopic => {
    const topic = flexible ? r.compactString() : r.string();
    const partitions = flexible ? r.compactArray(partition) : r.array(partition);
    if (flexible) r.skipTags();
    return { topic, partitions };
  };
  return flexible ? reader.compactArray(read) : reader.array(read);
}

function addedPartitions(body: Buffer, version: number): RequestedTopic[] {
  if (version >= 4) throw new Error('answerError knows AddPartitionsToTxn up to v3 only');
  const flexible = version >= 3;
  const reader = new WireReader(body, 'AddPartitionsToTxn');
  skipString(reader, flexible);
  reader.int64();
  reader.int16();
  return requestedTopics(reader, flexible, (r) => r.int32());
}

function committedPartitions(body: Buffer, version: number): RequestedTopic[] {
  const flexible = version >= 3;
  const reader = new WireReader(body, 'TxnOffsetCommit');
  skipString(reader, flexible);
  skipString(reader, flexible);
  reader.int64();
  reader.int16();
  if (version >= 3) {
    reader.int32();
    skipString(reader, flexible);
    skipString(reader, flexible);
  }
  return requestedTopics(reader, flexible, (r) => {
    const partition = r.int32();
    r.int64();
    if (version >= 2) r.int32();
    skipString(r, flexible);
    if (flexible) r.skipTags();
    return partition;
  });
}

function producedPartitions(body: Buffer, version: number): RequestedTopic[] {
  if (version < 3 || version > 12) throw new Error('answerError knows Produce v3 to v12 only');
  const flexible = version >= 9;
  const reader = new WireReader(body, 'Produce');
  skipString(reader, flexible);
  reader.int16();
  reader.int32();
  return requestedTopics(reader, flexible, (r) => {
    const partition = r.int32();
    if (flexible) {
      r.compactNullableBytes();
      r.skipTags();
    } else r.nullableBytes();
    return partition;
  });
}

function fetchedPartitions(body: Buffer, version: number): RequestedTopic[] {
  if (version < 4 || version > 11) throw new Error('answerError knows Fetch v4 to v11 only');
  const reader = new WireReader(body, 'Fetch');
  for (const field of ['replica_id', 'max_wait_ms', 'min_bytes', 'max_bytes']) reader.int32(field);
  reader.int8('isolation_level');
  if (version >= 7) reader.raw(8, 'session');
  return requestedTopics(reader, false, (r) => {
    const partition = r.int32();
    if (version >= 9) r.int32();
    r.int64();
    if (version >= 5) r.int64();
    r.int32();
    return partition;
  });
}

function skipString(reader: WireReader, flexible: boolean): void {
  if (flexible) reader.compactNullableString();
  else reader.nullableString();
}
