import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a cluster with Kafka's own Java client, as the judge in tests. One JSON request per line of standard input; the answer is any
 * number of lines, the last of which has "done" or "error". Bytes are base64, so that nothing in them can be taken for anything else.
 */
public final class IndependentReader {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final String brokers;
  private final Admin admin;
  private final BufferedWriter out;

  private IndependentReader(String brokers) {
    this.brokers = brokers;
    this.admin = Admin.create(Map.of("bootstrap.servers", brokers));
    this.out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8), 1 << 16);
  }

  public static void main(String[] args) throws Exception {
    IndependentReader reader = new IndependentReader(args[0]);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    // The end of standard input is the end of the test process, however it came about.
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      ObjectNode last;
      try {
        last = reader.answer(JSON.readTree(line));
        last.put("done", true);
      } catch (Exception error) {
        Throwable cause = error instanceof ExecutionException && error.getCause() != null ? error.getCause() : error;
        last = JSON.createObjectNode().put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
      }
      reader.write(last);
      reader.out.flush();
    }
    Runtime.getRuntime().halt(0);
  }

  private ObjectNode answer(JsonNode request) throws Exception {
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(request.get("deadlineMs").asLong());
    switch (request.get("do").asText()) {
      case "read":
        return read(request.get("topic").asText(), isolation(request), deadline);
      case "ends":
        return ends(partitions(request.get("topic").asText(), deadline), deadline);
      case "groupOffsets":
        return groupOffsets(request.get("group").asText(), deadline);
      case "openTransactions":
        return openTransactions(request.get("topic").asText(), deadline);
      default:
        throw new IllegalArgumentException("unknown request " + request);
    }
  }

  private ObjectNode read(String topic, IsolationLevel isolation, long deadline) throws Exception {
    List<TopicPartition> partitions = partitions(topic, deadline);
    ObjectNode ends = isolation == IsolationLevel.READ_COMMITTED ? settledEnds(partitions, deadline) : ends(partitions, deadline);
    Map<TopicPartition, Long> targets = new TreeMap<>((a, b) -> Integer.compare(a.partition(), b.partition()));
    String end = isolation == IsolationLevel.READ_COMMITTED ? "lastStable" : "highWatermark";
    for (JsonNode row : ends.get("partitions")) targets.put(new TopicPartition(topic, row.get("partition").asInt()), row.get(end).asLong());

    Properties settings = new Properties();
    settings.put("bootstrap.servers", brokers);
    settings.put("isolation.level", isolation == IsolationLevel.READ_COMMITTED ? "read_committed" : "read_uncommitted");
    settings.put("enable.auto.commit", "false");
    settings.put("auto.offset.reset", "none");
    settings.put("allow.auto.create.topics", "false");
    settings.put("max.poll.records", "10000");
    // A partition that has been read to its end holds up the others of its leader for this long.
    settings.put("fetch.max.wait.ms", "20");
    settings.put("max.partition.fetch.bytes", String.valueOf(8 << 20));
    try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      consumer.assign(partitions);
      for (JsonNode row : ends.get("partitions")) {
        consumer.seek(new TopicPartition(topic, row.get("partition").asInt()), row.get("logStart").asLong());
      }
      List<TopicPartition> open = new ArrayList<>(partitions);
      while (true) {
        // The position also passes over aborted records and markers, so that it arrives even where no record is left to read.
        List<TopicPartition> arrived = new ArrayList<>();
        for (TopicPartition partition : open) {
          if (consumer.position(partition, left(deadline)) >= targets.get(partition)) arrived.add(partition);
        }
        consumer.pause(arrived);
        open.removeAll(arrived);
        if (open.isEmpty()) return ends;
        if (System.nanoTime() > deadline) {
          StringBuilder missing = new StringBuilder();
          for (TopicPartition partition : open) {
            missing.append(String.format(" %s stands at %d of %d.", partition, consumer.position(partition), targets.get(partition)));
          }
          throw new IllegalStateException("the end was not reached in time:" + missing);
        }
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
          if (record.offset() < targets.get(new TopicPartition(topic, record.partition()))) write(json(record));
        }
      }
    }
  }

  /**
   * A transaction that is committed, and whose offsets the group shows already, may still be on its way to a partition: each gets its marker by
   * itself. So the last stable offsets are given a moment to reach what was there at the beginning. Where a transaction stays open they never do,
   * and the answer shows it.
   */
  private ObjectNode settledEnds(List<TopicPartition> partitions, long deadline) throws Exception {
    long moment = Math.min(deadline, System.nanoTime() + TimeUnit.SECONDS.toNanos(5));
    ObjectNode first = ends(partitions, deadline);
    ObjectNode now = first;
    while (!settled(first, now) && System.nanoTime() < moment) {
      Thread.sleep(20);
      now = ends(partitions, deadline);
    }
    return now;
  }

  private static boolean settled(ObjectNode first, ObjectNode now) {
    for (int i = 0; i < first.get("partitions").size(); i++) {
      long stable = now.get("partitions").get(i).get("lastStable").asLong();
      if (stable < first.get("partitions").get(i).get("highWatermark").asLong()) return false;
    }
    return true;
  }

  private ObjectNode ends(List<TopicPartition> partitions, long deadline) throws Exception {
    // In this order, start <= last stable <= high watermark holds although each may move in between.
    Map<TopicPartition, ListOffsetsResultInfo> start = offsets(partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED, deadline);
    Map<TopicPartition, ListOffsetsResultInfo> stable = offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED, deadline);
    Map<TopicPartition, ListOffsetsResultInfo> high = offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED, deadline);
    ObjectNode result = JSON.createObjectNode();
    ArrayNode rows = result.putArray("partitions");
    for (TopicPartition partition : partitions) {
      rows.addObject()
          .put("partition", partition.partition())
          .put("logStart", String.valueOf(start.get(partition).offset()))
          .put("lastStable", String.valueOf(stable.get(partition).offset()))
          .put("highWatermark", String.valueOf(high.get(partition).offset()));
    }
    return result;
  }

  private ObjectNode groupOffsets(String group, long deadline) throws Exception {
    Map<TopicPartition, OffsetAndMetadata> offsets =
        admin
            .listConsumerGroupOffsets(
                Map.of(group, new ListConsumerGroupOffsetsSpec()),
                // Offsets in an open transaction are no answer: wait for its outcome.
                new ListConsumerGroupOffsetsOptions().requireStable(true).timeoutMs((int) left(deadline).toMillis()))
            .partitionsToOffsetAndMetadata(group)
            .get(left(deadline).toMillis(), TimeUnit.MILLISECONDS);
    ObjectNode result = JSON.createObjectNode();
    ArrayNode rows = result.putArray("offsets");
    offsets.forEach(
        (partition, committed) -> {
          if (committed == null) return;
          rows.addObject()
              .put("topic", partition.topic())
              .put("partition", partition.partition())
              .put("offset", String.valueOf(committed.offset()))
              .put("leaderEpoch", committed.leaderEpoch().orElse(null))
              .put("metadata", committed.metadata());
        });
    return result;
  }

  private ObjectNode openTransactions(String topic, long deadline) throws Exception {
    ObjectNode result = JSON.createObjectNode();
    ArrayNode rows = result.putArray("transactions");
    var described = admin.describeProducers(partitions(topic, deadline)).all().get(left(deadline).toMillis(), TimeUnit.MILLISECONDS);
    described.forEach(
        (partition, state) -> {
          for (ProducerState producer : state.activeProducers()) {
            if (producer.currentTransactionStartOffset().isEmpty()) continue;
            rows.addObject()
                .put("partition", partition.partition())
                .put("producerId", String.valueOf(producer.producerId()))
                .put("producerEpoch", producer.producerEpoch())
                .put("startOffset", String.valueOf(producer.currentTransactionStartOffset().getAsLong()));
          }
        });
    return result;
  }

  private List<TopicPartition> partitions(String topic, long deadline) throws Exception {
    List<TopicPartition> partitions = new ArrayList<>();
    var description = admin.describeTopics(List.of(topic)).allTopicNames().get(left(deadline).toMillis(), TimeUnit.MILLISECONDS).get(topic);
    for (TopicPartitionInfo info : description.partitions()) partitions.add(new TopicPartition(topic, info.partition()));
    return partitions;
  }

  private Map<TopicPartition, ListOffsetsResultInfo> offsets(
      List<TopicPartition> partitions, OffsetSpec spec, IsolationLevel isolation, long deadline) throws Exception {
    Map<TopicPartition, OffsetSpec> specs = new TreeMap<>((a, b) -> Integer.compare(a.partition(), b.partition()));
    for (TopicPartition partition : partitions) specs.put(partition, spec);
    return admin.listOffsets(specs, new ListOffsetsOptions(isolation)).all().get(left(deadline).toMillis(), TimeUnit.MILLISECONDS);
  }

  private static ObjectNode json(ConsumerRecord<byte[], byte[]> record) {
    ObjectNode node = JSON.createObjectNode();
    node.put("p", record.partition()).put("o", String.valueOf(record.offset())).put("t", record.timestamp());
    node.put("k", base64(record.key())).put("v", base64(record.value())).put("e", record.leaderEpoch().orElse(null));
    ArrayNode headers = node.putArray("h");
    for (Header header : record.headers()) headers.addArray().add(header.key()).add(base64(header.value()));
    return node;
  }

  private static String base64(byte[] bytes) {
    return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
  }

  private static IsolationLevel isolation(JsonNode request) {
    return request.get("isolation").asText().equals("read-committed") ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED;
  }

  private static Duration left(long deadline) {
    return Duration.ofNanos(Math.max(TimeUnit.MILLISECONDS.toNanos(1), deadline - System.nanoTime()));
  }

  private void write(JsonNode node) throws Exception {
    out.write(JSON.writeValueAsString(node));
    out.write('\n');
  }
}
