package plinth.keeper;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/** Does what run-kafka says, a line each, and answers each with a line: "ok …" or "error …". */
public final class Client {
    private static final int SECONDS = 60;
    private static final int TRIES = 100;

    private final String brokers;
    private final Admin admin;
    private final ZooKeeper nodes;
    private Load load;

    private Client(String brokers, String keeper) throws Exception {
        this.brokers = brokers;
        admin = Admin.create(settings());
        nodes = new ZooKeeper(keeper, 20_000, event -> { });
    }

    /** Client BROKERS KEEPER */
    public static void main(String[] arguments) throws Exception {
        Client client = new Client(arguments[0], arguments[1]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = "ok " + client.carryOut(line.split(" "));
            } catch (ExecutionException failure) {
                answer = "error " + failure.getCause();
            } catch (Exception failure) {
                answer = "error " + failure;
            }
            System.out.println(answer.replace('\n', ' ').trim());
        }
        // Clients that wait for brokers would not end.
        Runtime.getRuntime().halt(0);
    }

    private Map<String, Object> settings() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", brokers);
        settings.put("reconnect.backoff.max.ms", 500);
        settings.put("request.timeout.ms", 10_000);
        return settings;
    }

    private String carryOut(String[] words) throws Exception {
        switch (words[0]) {
            case "brokers": {
                var cluster = admin.describeCluster();
                var ids = new TreeSet<Integer>();
                cluster.nodes().get(SECONDS, TimeUnit.SECONDS).forEach(node -> ids.add(node.id()));
                var controller = cluster.controller().get(SECONDS, TimeUnit.SECONDS);
                return join(ids) + " " + (controller == null ? -1 : controller.id());
            }
            case "create": {
                var topic = new NewTopic(words[1], Integer.parseInt(words[2]), Short.parseShort(words[3]));
                admin.createTopics(List.of(topic)).all().get(SECONDS, TimeUnit.SECONDS);
                return "";
            }
            case "topics":
                return String.join(",", new TreeSet<>(admin.listTopics().names().get(SECONDS, TimeUnit.SECONDS)));
            case "delete":
                admin.deleteTopics(List.of(words[1])).all().get(SECONDS, TimeUnit.SECONDS);
                return "";
            case "partitions": {
                var more = Map.of(words[1], NewPartitions.increaseTo(Integer.parseInt(words[2])));
                admin.createPartitions(more).all().get(SECONDS, TimeUnit.SECONDS);
                return "";
            }
            // Each partition: leader:replicas:replicas in sync
            case "replicas":
                return describe(words[1]).partitions().stream().map(partition ->
                    (partition.leader() == null ? -1 : partition.leader().id())
                        + ":" + join(partition.replicas().stream().map(node -> node.id()).collect(Collectors.toList()))
                        + ":" + join(partition.isr().stream().map(node -> node.id()).sorted()
                            .collect(Collectors.toList())))
                    .collect(Collectors.joining(" "));
            case "configure": {
                var change = new AlterConfigOp(new ConfigEntry(words[3], words[4]), AlterConfigOp.OpType.SET);
                Collection<AlterConfigOp> changes = List.of(change);
                admin.incrementalAlterConfigs(Map.of(resource(words), changes)).all().get(SECONDS, TimeUnit.SECONDS);
                return "";
            }
            case "setting": {
                var all = admin.describeConfigs(List.of(resource(words))).all().get(SECONDS, TimeUnit.SECONDS);
                return all.get(resource(words)).get(words[3]).value();
            }
            case "move": {
                var targets = Arrays.stream(words[3].split(",")).map(Integer::parseInt).collect(Collectors.toList());
                var partition = new TopicPartition(words[1], Integer.parseInt(words[2]));
                var moves = Map.of(partition, Optional.of(new NewPartitionReassignment(targets)));
                admin.alterPartitionReassignments(moves).all().get(SECONDS, TimeUnit.SECONDS);
                return "";
            }
            case "moves":
                return "" + admin.listPartitionReassignments().reassignments().get(SECONDS, TimeUnit.SECONDS).size();
            case "elect":
                admin.electLeaders(ElectionType.PREFERRED, null).all().get(SECONDS, TimeUnit.SECONDS);
                return "";
            case "allow":
                admin.createAcls(List.of(rule(words[1]))).all().get(SECONDS, TimeUnit.SECONDS);
                return "";
            case "forbid": {
                var gone = admin.deleteAcls(List.of(rule(words[1]).toFilter())).all().get(SECONDS, TimeUnit.SECONDS);
                return "" + gone.size();
            }
            case "allowed":
                return admin.describeAcls(AclBindingFilter.ANY).values().get(SECONDS, TimeUnit.SECONDS).stream()
                    .map(found -> found.entry().principal()).sorted().collect(Collectors.joining(","));
            case "password": {
                var kind = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
                var change = new UserScramCredentialUpsertion(words[1], kind, words[2]);
                admin.alterUserScramCredentials(List.of(change)).all().get(SECONDS, TimeUnit.SECONDS);
                return "";
            }
            case "no-password": {
                var change = new UserScramCredentialDeletion(words[1], ScramMechanism.SCRAM_SHA_256);
                admin.alterUserScramCredentials(List.of(change)).all().get(SECONDS, TimeUnit.SECONDS);
                return "";
            }
            case "passwords": {
                var users = admin.describeUserScramCredentials().users().get(SECONDS, TimeUnit.SECONDS);
                return String.join(",", new TreeSet<>(users));
            }
            case "produce":
                return produce(words[1], Integer.parseInt(words[2]));
            case "transact":
                return transact(words[1], Integer.parseInt(words[2]));
            case "read":
                return read(words[1], false).toString();
            case "read-committed":
                return read(words[1], true).toString();
            case "node": {
                Stat stat = new Stat();
                byte[] data = nodes.getData(words[1], false, stat);
                String text = data == null ? "" : new String(data, StandardCharsets.UTF_8);
                return Long.toHexString(stat.getEphemeralOwner()) + " " + text;
            }
            case "nodes":
                return String.join(",", new TreeSet<>(nodes.getChildren(words[1], false)));
            case "delete-node":
                nodes.delete(words[1], -1);
                return "";
            case "load":
                load = new Load(words[1], Integer.parseInt(words[2]));
                return "";
            case "progress":
                return load.progress();
            case "stop-load":
                load.stop();
                return load.progress();
            case "check-load":
                return load.check();
            default:
                throw new IllegalArgumentException("unknown: " + words[0]);
        }
    }

    private static String join(Iterable<Integer> numbers) {
        List<String> texts = new ArrayList<>();
        numbers.forEach(number -> texts.add("" + number));
        return String.join(",", texts);
    }

    private static ConfigResource resource(String[] words) {
        return new ConfigResource(ConfigResource.Type.valueOf(words[1].toUpperCase()), words[2]);
    }

    private static AclBinding rule(String user) {
        var who = new AccessControlEntry("User:" + user, "*", AclOperation.READ, AclPermissionType.ALLOW);
        return new AclBinding(new ResourcePattern(ResourceType.TOPIC, "plain", PatternType.LITERAL), who);
    }

    private TopicDescription describe(String topic) throws Exception {
        for (int tries = 1; ; tries++) {
            try {
                return admin.describeTopics(List.of(topic)).allTopicNames().get(SECONDS, TimeUnit.SECONDS).get(topic);
            } catch (ExecutionException failure) {
                // The broker that was asked may not have heard of a new topic yet.
                if (!(failure.getCause() instanceof UnknownTopicOrPartitionException) || tries == TRIES) {
                    throw failure;
                }
                Thread.sleep(100);
            }
        }
    }

    private KafkaProducer<Long, Long> producer(Map<String, Object> more) {
        Map<String, Object> settings = settings();
        settings.put("acks", "all");
        settings.put("enable.idempotence", true);
        // However long a fault lasts, a record is sent until it is confirmed.
        settings.put("delivery.timeout.ms", 300_000);
        settings.put("max.block.ms", 300_000);
        settings.put("linger.ms", 2);
        settings.putAll(more);
        return new KafkaProducer<>(settings, new LongSerializer(), new LongSerializer());
    }

    private KafkaConsumer<Long, Long> consumer(Map<String, Object> more) {
        Map<String, Object> settings = settings();
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        settings.put("default.api.timeout.ms", 60_000);
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new LongDeserializer(), new LongDeserializer());
    }

    private String produce(String topic, int count) {
        try (var producer = producer(Map.of())) {
            return "" + IntStream.range(0, count)
                .mapToObj(i -> producer.send(new ProducerRecord<>(topic, 0L, (long) i)))
                .collect(Collectors.toList()).stream()
                .filter(sent -> {
                    try {
                        return sent.get() != null;
                    } catch (Exception failure) {
                        return false;
                    }
                }).count();
        }
    }

    /** Two transactions, each of so many records; the second one is given up. */
    private String transact(String topic, int count) {
        try (var producer = producer(Map.of("transactional.id", topic))) {
            producer.initTransactions();
            for (boolean good : new boolean[] {true, false}) {
                producer.beginTransaction();
                for (long i = 0; i < count; i++) {
                    producer.send(new ProducerRecord<>(topic, good ? 1L : 2L, i));
                }
                producer.flush();
                if (good) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        return "";
    }

    /** What a topic holds, and how often each record is there. */
    private static final class Held {
        private final Map<Long, Map<Long, Integer>> times = new HashMap<>();
        private final Map<List<Object>, Long> last = new HashMap<>();
        private long count;
        private long disordered;

        private void add(ConsumerRecord<Long, Long> record) {
            count++;
            times.computeIfAbsent(record.key(), key -> new HashMap<>()).merge(record.value(), 1, Integer::sum);
            Long before = last.put(List.of(record.key(), record.partition()), record.value());
            if (before != null && before >= record.value()) {
                disordered++;
            }
        }

        private int times(long key, long value) {
            return times.getOrDefault(key, Map.of()).getOrDefault(value, 0);
        }

        private long different() {
            return times.values().stream().mapToLong(Map::size).sum();
        }

        @Override
        public String toString() {
            return count + " " + different() + " " + disordered;
        }
    }

    private Held read(String topic, boolean committed) throws Exception {
        String isolation = committed ? "read_committed" : "read_uncommitted";
        try (var consumer = consumer(Map.of("isolation.level", isolation))) {
            Set<TopicPartition> partitions = describe(topic).partitions().stream()
                .map(info -> new TopicPartition(topic, info.partition())).collect(Collectors.toSet());
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            var ends = consumer.endOffsets(partitions);
            var held = new Held();
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                if (System.nanoTime() > deadline) {
                    throw new KafkaException("cannot read " + topic + " to its end");
                }
                consumer.poll(Duration.ofMillis(200)).forEach(held::add);
            }
            return held;
        }
    }

    /** Producers, and a group of two consumers, until they are stopped. */
    private final class Load {
        private static final int READERS = 2;
        private static final int PAUSE_MS = 2;

        private final String topic;
        private final int partitions;
        private final AtomicLong[] sent;
        private final AtomicInteger unconfirmed = new AtomicInteger();
        private final List<Set<Long>> confirmed = new ArrayList<>();
        private final List<Set<Long>> seen = new ArrayList<>();
        private final List<Thread> writers = new ArrayList<>();
        private final List<Thread> readers = new ArrayList<>();
        private final Map<String, Integer> troubles = new ConcurrentHashMap<>();
        private volatile boolean writing = true;
        private volatile boolean reading = true;

        private Load(String topic, int producers) throws Exception {
            this.topic = topic;
            partitions = describe(topic).partitions().size();
            sent = new AtomicLong[producers];
            for (int i = 0; i < producers; i++) {
                int producer = i;
                sent[i] = new AtomicLong();
                confirmed.add(ConcurrentHashMap.newKeySet());
                seen.add(ConcurrentHashMap.newKeySet());
                writers.add(start(() -> write(producer)));
            }
            for (int i = 0; i < READERS; i++) {
                readers.add(start(this::consume));
            }
        }

        private Thread start(Runnable work) {
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            thread.start();
            return thread;
        }

        private void trouble(Exception failure) {
            troubles.merge(failure.getClass().getSimpleName(), 1, Integer::sum);
        }

        private void write(int id) {
            try (var producer = producer(Map.of())) {
                while (writing) {
                    long number = sent[id].getAndIncrement();
                    int partition = (int) (number % partitions);
                    producer.send(new ProducerRecord<>(topic, partition, (long) id, number), (place, failure) -> {
                        if (failure == null) {
                            confirmed.get(id).add(number);
                        } else {
                            unconfirmed.incrementAndGet();
                            trouble(failure);
                        }
                    });
                    Thread.sleep(PAUSE_MS);
                }
                producer.flush();
            } catch (Exception failure) {
                trouble(failure);
            }
        }

        private void consume() {
            // A consumer that has an error for good is followed by another one.
            while (reading) {
                try (var consumer = consumer(Map.of("group.id", topic + "-readers", "session.timeout.ms", 10_000))) {
                    consumer.subscribe(List.of(topic));
                    while (reading) {
                        var records = consumer.poll(Duration.ofMillis(200));
                        records.forEach(record -> seen.get(record.key().intValue()).add(record.value()));
                        if (!records.isEmpty()) {
                            consumer.commitSync();
                        }
                    }
                } catch (KafkaException failure) {
                    trouble(failure);
                }
            }
        }

        private long count(List<Set<Long>> sets) {
            return sets.stream().mapToLong(Set::size).sum();
        }

        private String progress() {
            return count(confirmed) + " " + count(seen) + " " + unconfirmed + " " + troubles;
        }

        /** Stops the producers, and the group when it has seen everything. */
        private void stop() throws Exception {
            writing = false;
            for (Thread writer : writers) {
                writer.join();
            }
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(2 * SECONDS);
            while (count(seen) < count(confirmed) && System.nanoTime() < deadline) {
                Thread.sleep(100);
            }
            reading = false;
            for (Thread reader : readers) {
                reader.join();
            }
        }

        /** confirmed, of these: lost, doubled, not seen by the group; all in the topic, of these: out of order */
        private String check() throws Exception {
            Held held = read(topic, false);
            long lost = 0;
            long doubled = 0;
            long unseen = 0;
            for (int i = 0; i < sent.length; i++) {
                for (long number = 0; number < sent[i].get(); number++) {
                    boolean good = confirmed.get(i).contains(number);
                    lost += good && held.times(i, number) == 0 ? 1 : 0;
                    doubled += held.times(i, number) > 1 ? 1 : 0;
                    unseen += good && !seen.get(i).contains(number) ? 1 : 0;
                }
            }
            return count(confirmed) + " " + lost + " " + doubled + " " + unseen + " " + held.count + " "
                + held.disordered;
        }
    }
}
