import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/**
 * The neutral side of the benchmark: the Kafka Streams job that Tidemark is paired with, and, for every engine alike, the generator, the
 * clock, the latency probe and the check of the output. All answers are one JSON object on standard output.
 *
 *   generate TOPIC RECORDS [keyed]    fills a topic (which exists) with JSON records of 187 bytes, 10,000 keys; keyed: with an idempotency key each
 *   map APPLICATION IN OUT THREADS COMMIT_MS   the JSON map job in Kafka Streams, exactly_once_v2, until it is killed
 *   drain GROUP IN                    waits until the group has committed the end of the topic; records per second, since the first commit that
 *                                     is seen, and from a tenth of the records on
 *   verify OUT                        reads OUT with read_committed and counts records and distinct ids
 *   latency IN OUT RATE SECONDS       sends at a steady rate and measures until the output is readable; the first 5 s are left out
 */
public final class Peer {
  private static final String BROKERS = System.getenv("BROKERS");
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int KEYS = 10_000;
  private static final String PADDING = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-abcdefghijk";
  private static final long STUCK_MS = 60_000;
  private static final int WARM_UP_LOOKS = 150;
  private static final int LOOK_EVERY_MS = 20;

  public static void main(String[] args) throws Exception {
    switch (args[0]) {
      case "generate" -> generate(args[1], Long.parseLong(args[2]), args.length > 3);
      case "map" -> map(args[1], args[2], args[3], args[4], args[5]);
      case "drain" -> drain(args[1], args[2]);
      case "verify" -> verify(args[1]);
      case "latency" -> latency(args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]));
      default -> throw new IllegalArgumentException("unknown command " + args[0]);
    }
  }

  private static Properties properties(Object... pairs) {
    Properties properties = new Properties();
    properties.put("bootstrap.servers", BROKERS);
    for (int i = 0; i < pairs.length; i += 2) properties.put(pairs[i], pairs[i + 1]);
    return properties;
  }

  private static String key(long id) {
    return "user-" + (int) ((id * 2654435761L >>> 3) % KEYS);
  }

  private static String record(long id, long timestamp) {
    return "{\"id\":" + id + ",\"user\":\"" + key(id) + "\",\"amount\":" + (id % 1000) + ".25,\"ts\":" + timestamp
        + ",\"kind\":\"purchase\",\"region\":\"eu-west\",\"pad\":\"" + PADDING + "\"}";
  }

  private static long numberAfter(String json, String field) {
    int from = json.indexOf("\"" + field + "\":") + field.length() + 3;
    int to = from;
    while (to < json.length() && (Character.isDigit(json.charAt(to)) || json.charAt(to) == '-')) to++;
    return Long.parseLong(json, from, to, 10);
  }

  private static KafkaProducer<String, String> producer(String linger, String acks) {
    return new KafkaProducer<>(properties("linger.ms", linger, "acks", acks, "batch.size", "131072",
        "key.serializer", StringSerializer.class.getName(), "value.serializer", StringSerializer.class.getName()));
  }

  private static KafkaConsumer<String, String> committedReader(String topic) {
    KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties("isolation.level", "read_committed",
        "key.deserializer", StringDeserializer.class.getName(), "value.deserializer", StringDeserializer.class.getName(),
        "fetch.max.bytes", "50000000"));
    consumer.assign(consumer.partitionsFor(topic).stream().map(p -> new TopicPartition(topic, p.partition())).collect(Collectors.toList()));
    return consumer;
  }

  private static void generate(String topic, long records, boolean keyed) {
    long started = System.currentTimeMillis();
    try (KafkaProducer<String, String> producer = producer("20", "all")) {
      for (long id = 0; id < records; id++) {
        ProducerRecord<String, String> record = new ProducerRecord<>(topic, key(id), record(id, started));
        if (keyed) record.headers().add("idempotency-key", ("purchase-" + id).getBytes(StandardCharsets.UTF_8));
        producer.send(record);
      }
      producer.flush();
    }
    System.out.printf("{\"records\":%d,\"ms\":%d,\"bytes\":%d}%n", records, System.currentTimeMillis() - started, record(123_456, started).length());
  }

  private static void map(String application, String in, String out, String threads, String commitMs) throws Exception {
    Properties properties = properties("application.id", application, "processing.guarantee", "exactly_once_v2", "commit.interval.ms", commitMs,
        "num.stream.threads", threads, "replication.factor", "1", "auto.offset.reset", "earliest",
        "state.dir", System.getProperty("java.io.tmpdir") + "/" + application,
        "default.key.serde", Serdes.StringSerde.class, "default.value.serde", Serdes.StringSerde.class);
    StreamsBuilder builder = new StreamsBuilder();
    builder.<String, String>stream(in).mapValues(value -> {
      try {
        ObjectNode node = (ObjectNode) JSON.readTree(value);
        node.put("processed", true);
        return JSON.writeValueAsString(node);
      } catch (Exception e) {
        throw new RuntimeException(e);
      }
    }).to(out);
    KafkaStreams streams = new KafkaStreams(builder.build(), properties);
    streams.setStateListener((now, before) -> {
      if (now == KafkaStreams.State.RUNNING) System.out.println("{\"state\":\"running\"}");
    });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
    streams.start();
    new CountDownLatch(1).await();
  }

  private static void drain(String group, String in) throws Exception {
    try (Admin admin = Admin.create(properties())) {
      Map<TopicPartition, OffsetSpec> latest = admin.describeTopics(List.of(in)).allTopicNames().get().get(in).partitions().stream()
          .collect(Collectors.toMap(p -> new TopicPartition(in, p.partition()), p -> OffsetSpec.latest()));
      long end = admin.listOffsets(latest).all().get().values().stream().mapToLong(offset -> offset.offset()).sum();
      // A JVM that has just started takes as much of the processor as the job that it watches: it warms up before the job starts.
      for (int i = 0; i < WARM_UP_LOOKS; i++) {
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        Thread.sleep(LOOK_EVERY_MS);
      }
      System.out.println("{\"state\":\"running\"}");
      long first = 0, atFirst = 0, tenth = 0, atTenth = 0, last = -1, lastChange = System.currentTimeMillis();
      while (true) {
        long committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().entrySet().stream()
            .filter(entry -> entry.getKey().topic().equals(in) && entry.getValue() != null).mapToLong(entry -> entry.getValue().offset()).sum();
        long now = System.currentTimeMillis();
        if (committed != last) lastChange = now;
        last = committed;
        if (committed > 0 && first == 0) { first = now; atFirst = committed; }
        if (committed > end / 10 && tenth == 0) { tenth = now; atTenth = committed; }
        if (committed >= end) {
          System.out.printf("{\"records\":%d,\"ms\":%d,\"perSecond\":%d,\"steadyPerSecond\":%d}%n", end, now - first,
              (end - atFirst) * 1000 / Math.max(1, now - first), (end - atTenth) * 1000 / Math.max(1, now - tenth));
          return;
        }
        if (now - lastChange > STUCK_MS) throw new IllegalStateException("stuck at " + committed + " of " + end);
        Thread.sleep(LOOK_EVERY_MS);
      }
    }
  }

  private static void verify(String out) {
    try (KafkaConsumer<String, String> consumer = committedReader(out)) {
      consumer.seekToBeginning(consumer.assignment());
      Map<TopicPartition, Long> end = consumer.endOffsets(consumer.assignment());
      BitSet ids = new BitSet();
      long records = 0, notProcessed = 0;
      while (end.entrySet().stream().anyMatch(entry -> consumer.position(entry.getKey()) < entry.getValue())) {
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
          records++;
          ids.set((int) numberAfter(record.value(), "id"));
          if (!record.value().endsWith("\"processed\":true}")) notProcessed++;
        }
      }
      System.out.printf("{\"records\":%d,\"distinct\":%d,\"notProcessed\":%d}%n", records, ids.cardinality(), notProcessed);
    }
  }

  private static void latency(String in, String out, int rate, int seconds) throws Exception {
    long total = (long) rate * seconds;
    long[] micros = new long[(int) total * 2];
    int[] count = {0};
    boolean[] stop = {false};
    KafkaConsumer<String, String> consumer = committedReader(out);
    consumer.seekToEnd(consumer.assignment());
    consumer.assignment().forEach(consumer::position);
    long started = System.nanoTime();
    Thread reader = new Thread(() -> {
      while (!stop[0]) {
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
          long now = System.nanoTime();
          if (now - started > 5_000_000_000L && count[0] < micros.length) micros[count[0]++] = (now - numberAfter(record.value(), "ts")) / 1000;
        }
      }
    });
    reader.start();
    System.out.println("{\"state\":\"running\"}");
    try (KafkaProducer<String, String> producer = producer("1", "1")) {
      producer.partitionsFor(in);
      long begin = System.nanoTime();
      for (long id = 0; id < total; id++) {
        long due = begin + id * 1_000_000_000L / rate;
        while (System.nanoTime() < due) Thread.sleep(0, 500_000);
        producer.send(new ProducerRecord<>(in, key(id), record(id, System.nanoTime())));
      }
      producer.flush();
      Thread.sleep(3000);
    }
    stop[0] = true;
    reader.join();
    consumer.close();
    if (count[0] == 0) throw new IllegalStateException("no output arrived in " + out);
    long[] sorted = Arrays.copyOf(micros, count[0]);
    Arrays.sort(sorted);
    List<String> quantiles = new ArrayList<>();
    for (double q : new double[] {0.5, 0.9, 0.99, 0.999}) quantiles.add(String.format("\"p%s\":%.1f", String.valueOf(q * 100).replace(".0", ""), sorted[(int) (sorted.length * q)] / 1e3));
    System.out.printf("{\"outputs\":%d,%s,\"max\":%.1f}%n", sorted.length, String.join(",", quantiles), sorted[sorted.length - 1] / 1e3);
  }
}
