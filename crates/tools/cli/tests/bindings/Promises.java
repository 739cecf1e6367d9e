// Checks FoundationDB's promises about reads, through the unmodified Java binding.
//
// Arguments: the cluster file, the API version, and the name of the promise.

import com.apple.foundationdb.Database;
import com.apple.foundationdb.FDB;
import com.apple.foundationdb.FDBException;
import com.apple.foundationdb.KeySelector;
import com.apple.foundationdb.KeyValue;
import com.apple.foundationdb.LocalityUtil;
import com.apple.foundationdb.MappedKeyValue;
import com.apple.foundationdb.ReadTransaction;
import com.apple.foundationdb.StreamingMode;
import com.apple.foundationdb.Transaction;
import com.apple.foundationdb.async.CloseableAsyncIterator;
import com.apple.foundationdb.tuple.Tuple;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;

public class Promises {
    static final int CALLS = 300;
    static final int MAPPED_RANGE_READS_OWN_WRITES = 90_001;
    static final byte[] BEGIN = bytes("row/");
    static final byte[] END = bytes("row0");
    static final KeySelector NEXT = KeySelector.firstGreaterThan(row(3));

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }

    static byte[] row(int i) {
        return bytes("row/" + i);
    }

    static void check(boolean holds) {
        if (!holds) throw new AssertionError();
    }

    static int codeOf(Runnable action) {
        try {
            action.run();
            return 0;
        } catch (CompletionException e) {
            return ((FDBException) e.getCause()).getCode();
        } catch (FDBException e) {
            return e.getCode();
        }
    }

    static void fill(Database db) {
        db.run(tr -> {
            tr.clear(new byte[0], new byte[] {(byte) 255});
            for (int i = 0; i < 10; i++) tr.set(row(i), bytes("value " + i));
            return null;
        });
    }

    // ---- a commit waits for the reads that were begun before it ----

    static Map<String, Function<ReadTransaction, CompletableFuture<Boolean>>> forms() {
        Map<String, Function<ReadTransaction, CompletableFuture<Boolean>>> forms = new LinkedHashMap<>();
        byte[] value = bytes("value 3");
        forms.put("get", t -> t.get(row(3)).thenApply(v -> Arrays.equals(v, value)));
        forms.put("absent", t -> t.get(bytes("row/x")).thenApply(v -> v == null));
        forms.put("snapshot get", t -> t.snapshot().get(row(3)).thenApply(v -> Arrays.equals(v, value)));
        forms.put("get_key", t -> t.getKey(NEXT).thenApply(k -> Arrays.equals(k, row(4))));
        forms.put("snapshot get_key", t -> t.snapshot().getKey(NEXT).thenApply(k -> Arrays.equals(k, row(4))));
        forms.put("range", t -> t.getRange(BEGIN, END).asList().thenApply(rows -> rows.size() == 10));
        forms.put(
                "exact range",
                t -> t.getRange(BEGIN, END, 3, true, StreamingMode.EXACT)
                        .asList()
                        .thenApply(rows -> rows.size() == 3));
        forms.put("read version", t -> t.getReadVersion().thenApply(v -> v > 0));
        forms.put("range size", t -> t.getEstimatedRangeSizeBytes(BEGIN, END).thenApply(n -> n > 0));
        return forms;
    }

    static void commits(Database db) {
        fill(db);
        List<String> failed = new ArrayList<>();
        forms().forEach((name, form) -> {
            int[] bad = new int[3];
            for (int i = 0; i < CALLS; i++) {
                if (codeOf(() -> check(db.read(form).join())) != 0) bad[0]++;
                if (codeOf(() -> check(db.run(form).join())) != 0) bad[1]++;
                Function<Transaction, CompletableFuture<Boolean>> writing = t -> {
                    CompletableFuture<Boolean> begun = form.apply(t);
                    t.set(bytes("written"), bytes("x"));
                    return begun;
                };
                if (i % 10 == 0 && codeOf(() -> check(db.run(writing).join())) != 0) bad[2]++;
            }
            if (bad[0] + bad[1] + bad[2] > 0) failed.add(name + Arrays.toString(bad));
        });
        if (!failed.isEmpty()) throw new AssertionError(failed);
        for (int i = 0; i < CALLS; i++) {
            CompletableFuture<byte[]> stamp = db.run(t -> {
                t.set(bytes("written"), bytes("x"));
                return t.getVersionstamp();
            });
            check(stamp.join().length == 10);
            check(db.run(t -> t.getApproximateSize()).join() >= 0);
            List<CompletableFuture<?>> both = db.run(t -> Arrays.asList(t.get(row(3)), t.watch(row(3))));
            check(Arrays.equals((byte[]) both.get(0).join(), bytes("value 3")));
            check(!both.get(1).isDone());
            both.get(1).cancel(true);
        }
    }

    // ---- the same read again gives the same answer ----

    static List<String> answers(ReadTransaction t) {
        List<String> all = new ArrayList<>();
        for (int i = 0; i < 10; i++) all.add(text(t.get(row(i)).join()));
        for (KeyValue kv : t.getRange(BEGIN, END).asList().join()) all.add(text(kv.getKey()) + text(kv.getValue()));
        for (KeyValue kv : t.getRange(BEGIN, END, 3, true).asList().join()) all.add(text(kv.getKey()));
        for (int i = -2; i < 3; i++) all.add(text(t.getKey(NEXT.add(i)).join()));
        return all;
    }

    static String text(byte[] bytes) {
        return bytes == null ? "absent" : new String(bytes, StandardCharsets.ISO_8859_1);
    }

    static void repeated(Database db) throws InterruptedException {
        fill(db);
        AtomicBoolean stop = new AtomicBoolean();
        Thread changer = new Thread(() -> {
            for (int i = 0; !stop.get(); i++) {
                int n = i;
                db.run(t -> {
                    t.set(row(n % 10), bytes("changed " + n));
                    t.clear(row((n + 5) % 10));
                    return null;
                });
            }
        });
        changer.start();
        try {
            for (int i = 0; i < CALLS; i++) {
                try (Transaction tr = db.createTransaction()) {
                    ReadTransaction reader = i % 2 == 0 ? tr : tr.snapshot();
                    List<String> first = answers(reader);
                    check(answers(reader).equals(first));
                    tr.set(row(3), bytes("mine"));
                    List<String> seen = answers(reader);
                    check(seen.get(3).equals("mine") && answers(reader).equals(seen));
                    check(seen.subList(4, 10).equals(first.subList(4, 10)));
                }
            }
        } finally {
            stop.set(true);
            changer.join();
        }
    }

    // ---- locations of keys ----

    /** As in FoundationDB's own tests: a boundary and the last key before the next boundary are in one shard. */
    static int checkLocality(Database db) {
        try (Transaction tr = db.createTransaction()) {
            tr.options().setReadSystemKeys();
            List<byte[]> boundaries = new ArrayList<>();
            byte[] end = {(byte) 255, (byte) 255};
            try (CloseableAsyncIterator<byte[]> keys = LocalityUtil.getBoundaryKeys(tr, new byte[0], end)) {
                while (keys.hasNext()) boundaries.add(keys.next());
            }
            check(boundaries.get(0).length == 0);
            for (int i = 0; i < boundaries.size(); i++) {
                byte[] next = i + 1 < boundaries.size() ? boundaries.get(i + 1) : end;
                byte[] last = tr.getKey(KeySelector.lastLessThan(next)).join();
                String[] here = LocalityUtil.getAddressesForKey(tr, boundaries.get(i)).join();
                String[] there = LocalityUtil.getAddressesForKey(tr, last).join();
                check(here.length == 2);
                if (!new HashSet<>(Arrays.asList(here)).equals(new HashSet<>(Arrays.asList(there)))) {
                    throw new AssertionError(text(boundaries.get(i)) + " and " + text(last) + " lie apart");
                }
            }
            return boundaries.size();
        }
    }

    static void locality(Database db) {
        db.run(tr -> {
            tr.clear(new byte[0], new byte[] {(byte) 255});
            return null;
        });
        check(checkLocality(db) == 2);
        fill(db);
        checkLocality(db);
        for (int first : new int[] {0x01, 0x15, 0x60, 0xC0, 0xFE}) {
            db.run(tr -> {
                tr.set(new byte[] {(byte) first, 'k'}, bytes("value"));
                return null;
            });
            checkLocality(db);
        }
    }

    // ---- mapped ranges and own writes ----

    static byte[] index(int i) {
        return Tuple.from("index", i, "id" + i).pack();
    }

    static byte[] record(int i) {
        return Tuple.from("record", "id" + i).pack();
    }

    static CompletableFuture<List<MappedKeyValue>> mapped(ReadTransaction t, int from, int to, boolean reverse) {
        byte[] mapper = Tuple.from("record", "{K[2]}", "{...}").pack();
        KeySelector begin = KeySelector.firstGreaterOrEqual(index(from));
        KeySelector end = KeySelector.firstGreaterOrEqual(index(to));
        return t.getMappedRange(begin, end, mapper, 0, reverse, StreamingMode.WANT_ALL).asList();
    }

    static void fillIndex(Database db) {
        db.run(tr -> {
            tr.clear(new byte[0], new byte[] {(byte) 255});
            for (int i = 0; i < 20; i++) {
                tr.set(index(i), new byte[0]);
                for (int part = 0; part < 3; part++) {
                    tr.set(Tuple.from("record", "id" + i, part).pack(), bytes("part " + part));
                }
            }
            return null;
        });
    }

    static void mappedRanges(Database db) {
        fillIndex(db);
        for (int i = 0; i < CALLS; i++) {
            List<MappedKeyValue> rows = db.run(t -> mapped(t, 5, 10, false)).join();
            check(rows.size() == 5);
            for (MappedKeyValue row : rows) check(row.getRangeResult().size() == 3);
        }
        byte[] part = Tuple.from("record", "id7", 1).pack();
        byte[][] met = {index(7), part, Tuple.from("record", "id7", 9).pack()};
        for (byte[] key : met) {
            try (Transaction tr = db.createTransaction()) {
                tr.set(key, bytes("mine"));
                check(codeOf(() -> mapped(tr, 5, 10, false).join()) == 2039);
                // A read beside the write succeeds, and the fallback continues in the same transaction.
                check(mapped(tr, 10, 15, false).join().size() == 5);
                check(tr.getRange(index(5), index(10)).asList().join().size() == 5);
                tr.commit().join();
            }
        }
        try (Transaction tr = db.createTransaction()) {
            tr.clear(part);
            check(codeOf(() -> mapped(tr, 5, 10, false).join()) == 2039);
            check(codeOf(() -> mapped(tr, 10, 15, true).join()) == 2108);
        }
        try (Transaction tr = db.createTransaction()) {
            tr.options().setReadYourWritesDisable();
            check(codeOf(() -> mapped(tr, 5, 10, false).join()) == 2108);
        }
        fillIndex(db);
        try (Transaction tr = db.createTransaction()) {
            tr.options().getOptionConsumer().setOption(MAPPED_RANGE_READS_OWN_WRITES, null);
            tr.clear(part);
            List<MappedKeyValue> rows = mapped(tr, 5, 10, true).join();
            check(rows.size() == 5 && rows.get(2).getRangeResult().size() < rows.get(1).getRangeResult().size());
        }
    }

    public static void main(String[] arguments) throws Exception {
        FDB fdb = FDB.selectAPIVersion(Integer.parseInt(arguments[1]));
        try (Database db = fdb.open(arguments[0])) {
            db.options().setTransactionTimeout(60_000);
            switch (arguments[2]) {
                case "commits" -> commits(db);
                case "repeated" -> repeated(db);
                case "locality" -> locality(db);
                case "mapped" -> mappedRanges(db);
                default -> throw new IllegalArgumentException(arguments[2]);
            }
        }
        System.out.println("done");
    }
}
