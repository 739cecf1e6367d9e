// A tour of FoundationDB's API through the unmodified Java binding, on the cluster of the given cluster file.
//
// Between the marks `ready` and `go on` (on standard output and input) the test kills a server process.

import com.apple.foundationdb.Database;
import com.apple.foundationdb.FDB;
import com.apple.foundationdb.FDBException;
import com.apple.foundationdb.KeyArrayResult;
import com.apple.foundationdb.KeySelector;
import com.apple.foundationdb.KeyValue;
import com.apple.foundationdb.LocalityUtil;
import com.apple.foundationdb.MutationType;
import com.apple.foundationdb.Range;
import com.apple.foundationdb.ReadTransaction;
import com.apple.foundationdb.StreamingMode;
import com.apple.foundationdb.Tenant;
import com.apple.foundationdb.TenantManagement;
import com.apple.foundationdb.Transaction;
import com.apple.foundationdb.directory.DirectoryLayer;
import com.apple.foundationdb.directory.DirectorySubspace;
import com.apple.foundationdb.tuple.ByteArrayUtil;
import com.apple.foundationdb.tuple.Tuple;
import com.apple.foundationdb.tuple.Versionstamp;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

public class Tour {
    static final byte[] NOTHING = new byte[0];

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }

    static byte[] row(int i) {
        return bytes(String.format("row/%05d", i));
    }

    static void check(boolean holds) {
        if (!holds) throw new AssertionError();
    }

    static int codeOf(Runnable action) {
        try {
            action.run();
        } catch (CompletionException e) {
            return ((FDBException) e.getCause()).getCode();
        } catch (FDBException e) {
            return e.getCode();
        }
        throw new AssertionError("it should have failed");
    }

    static void keysAndRanges(Database db) {
        db.run(tr -> {
            tr.clear(NOTHING, new byte[] {(byte) 255});
            tr.set(bytes("hello"), bytes("world"));
            for (int i = 0; i < 2000; i++) tr.set(row(i), bytes("value " + i));
            return null;
        });
        db.read(tr -> {
            check(Arrays.equals(tr.get(bytes("hello")).join(), bytes("world")));
            check(tr.get(bytes("nothing")).join() == null);
            for (StreamingMode mode : StreamingMode.values()) {
                if (mode == StreamingMode.EXACT) continue;
                List<KeyValue> rows =
                    tr.getRange(bytes("row/"), bytes("row0"), 0, false, mode).asList().join();
                check(rows.size() == 2000 && Arrays.equals(rows.get(7).getKey(), row(7)));
            }
            check(codeOf(() -> tr.getRange(bytes("a"), bytes("b"), 0, false, StreamingMode.EXACT)
                .asList().join()) == 2210);
            List<KeyValue> last = tr.getRange(bytes("row/"), bytes("row0"), 3, true).asList().join();
            check(last.size() == 3 && Arrays.equals(last.get(0).getKey(), row(1999)));
            int count = 0;
            for (KeyValue ignored : tr.snapshot().getRange(Range.startsWith(bytes("row/")))) count++;
            check(count == 2000);
            check(Arrays.equals(tr.getKey(KeySelector.firstGreaterThan(row(10))).join(), row(11)));
            check(Arrays.equals(tr.getKey(KeySelector.lastLessThan(row(10)).add(5)).join(), row(14)));
            check(tr.getEstimatedRangeSizeBytes(bytes("row/"), bytes("row0")).join() > 2000 * 15);
            KeyArrayResult points = tr.getRangeSplitPoints(bytes("row/"), bytes("row0"), 10000).join();
            check(points.getKeys().size() > 3 && points.getKeys().size() < 10);
            return null;
        });
        try (Transaction tr = db.createTransaction()) {
            check(LocalityUtil.getAddressesForKey(tr, row(0)).join().length > 0);
        }
    }

    static void writesAndConflicts(Database db) {
        try (Transaction tr = db.createTransaction()) {
            tr.set(row(0), bytes("mine"));
            tr.clear(row(1), row(3));
            List<KeyValue> rows = tr.getRange(bytes("row/"), bytes("row0"), 2).asList().join();
            check(Arrays.equals(rows.get(1).getKey(), row(3)));
            check(tr.getApproximateSize().join() > 0);
            tr.cancel();
            check(codeOf(() -> tr.get(row(0)).join()) == 1025);
        }
        try (Transaction first = db.createTransaction(); Transaction second = db.createTransaction()) {
            first.get(bytes("hello")).join();
            second.get(bytes("hello")).join();
            first.addWriteConflictKey(bytes("hello"));
            second.options().setReportConflictingKeys();
            second.set(bytes("b"), NOTHING);
            first.commit().join();
            check(first.getCommittedVersion() > 0);
            check(codeOf(() -> second.commit().join()) == 1020);
            byte[] prefix = bytes("\u00ff\u00ff/transaction/conflicting_keys/");
            List<KeyValue> named = second.getRange(Range.startsWith(prefix)).asList().join();
            check(named.size() == 2 && new String(named.get(0).getKey()).endsWith("hello"));
            Transaction again = second.onError(new FDBException("conflict", 1020)).join();
            check(codeOf(() -> again.onError(new FDBException("no", 2000)).join()) == 2000);
        }
        byte[] one = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(1).array();
        List<CompletableFuture<Void>> adding = new ArrayList<>();
        for (int i = 0; i < 400; i++) {
            adding.add(db.runAsync(tr -> {
                tr.mutate(MutationType.ADD, bytes("count"), one);
                tr.mutate(MutationType.MAX, bytes("most"), new byte[] {7});
                return CompletableFuture.completedFuture(null);
            }));
        }
        adding.forEach(CompletableFuture::join);
        byte[] count = db.read(tr -> tr.get(bytes("count")).join());
        check(ByteBuffer.wrap(count).order(ByteOrder.LITTLE_ENDIAN).getLong() == 400);
    }

    static void stampsAndWatches(Database db) {
        CompletableFuture<byte[]> stamp = db.run(tr -> {
            byte[] key = Tuple.from("log", Versionstamp.incomplete(3)).packWithVersionstamp();
            tr.mutate(MutationType.SET_VERSIONSTAMPED_KEY, key, bytes("entry"));
            return tr.getVersionstamp();
        });
        KeyValue entry = db.read(tr -> tr.getRange(Tuple.from("log").range()).asList().join()).get(0);
        Versionstamp found = Tuple.fromBytes(entry.getKey()).getVersionstamp(1);
        check(found.equals(Versionstamp.complete(stamp.join(), 3)));

        CompletableFuture<Void> changed = db.run(tr -> tr.watch(bytes("hello")));
        check(!changed.isDone());
        db.run(tr -> {
            tr.set(bytes("hello"), bytes("again"));
            return null;
        });
        changed.join();
        CompletableFuture<Void> unchanged = db.run(tr -> tr.watch(bytes("hello")));
        check(unchanged.cancel(true) && unchanged.isCancelled());
    }

    static void layersAndTenants(Database db) {
        DirectoryLayer layer = DirectoryLayer.getDefault();
        DirectorySubspace directory = layer.createOrOpen(db, List.of("tour", "a")).join();
        byte[] key = directory.pack(Tuple.from(1, "x", null, -5.5, bytes("\u0000")));
        db.run(tr -> {
            tr.set(key, bytes("in a directory"));
            return null;
        });
        check(directory.unpack(key).getDouble(3) == -5.5);
        layer.move(db, List.of("tour", "a"), List.of("tour", "b")).join();
        check(layer.list(db, List.of("tour")).join().equals(List.of("b")));
        layer.remove(db, List.of("tour")).join();
        check(!layer.exists(db, List.of("tour")).join());

        byte[] name = bytes("tour");
        TenantManagement.createTenant(db, name).join();
        check(codeOf(() -> TenantManagement.createTenant(db, name).join()) == 2132);
        try (Tenant tenant = db.openTenant(name)) {
            tenant.run(tr -> {
                tr.set(bytes("hello"), bytes("tenant"));
                return null;
            });
            check(tenant.getId().join() > 0);
            check(tenant.run(tr -> LocalityUtil.getAddressesForKey(tr, bytes("hello")).join()).length > 0);
            check(Arrays.equals(db.read(tr -> tr.get(bytes("hello")).join()), bytes("again")));
            check(codeOf(() -> TenantManagement.deleteTenant(db, name).join()) == 2133);
            tenant.run(tr -> {
                tr.clear(bytes("hello"));
                return null;
            });
        }
        TenantManagement.deleteTenant(db, name).join();
        check(codeOf(() -> TenantManagement.deleteTenant(db, name).join()) == 2131);
    }

    interface Write {
        void to(Transaction tr);
    }

    static int commit(Database db, Write write) {
        try (Transaction tr = db.createTransaction()) {
            write.to(tr);
            return codeOf(() -> tr.commit().join());
        }
    }

    static void limits(Database db) throws InterruptedException {
        check(commit(db, tr -> tr.set(new byte[10_001], NOTHING)) == 2102);
        check(commit(db, tr -> tr.set(bytes("k"), new byte[100_001])) == 2103);
        check(commit(db, tr -> tr.set(bytes("\u00ff/not ours"), NOTHING)) == 2004);
        check(commit(db, tr -> {
            for (int i = 0; i < 120; i++) tr.set(row(i), new byte[100_000]);
        }) == 2101);
        try (Transaction tr = db.createTransaction()) {
            tr.options().setTimeout(1);
            Thread.sleep(20);
            check(codeOf(() -> tr.get(bytes("hello")).join()) == 1031);
        }
        check(codeOf(() -> db.read((ReadTransaction tr) -> {
            tr.setReadVersion(-1);
            return tr.get(bytes("hello")).join();
        })) > 0);
    }

    static List<KeyValue> entries(Database db, String name) {
        byte[] prefix = special("streams/" + name + "/");
        return db.read(tr -> tr.getRange(prefix, special("streams/" + name + "0")).asList().join());
    }

    static byte[] special(String name) {
        return ByteArrayUtil.join(new byte[] {(byte) 0xff, (byte) 0xff, '/'}, bytes(name));
    }

    static void streams(Database db) {
        db.run(tr -> {
            tr.set(bytes("stream/a"), bytes("1"));
            return null;
        });
        db.run(tr -> {
            tr.clear(bytes("stream/a"), bytes("streams and more"));
            return null;
        });
        List<KeyValue> rows = entries(db, "tour");
        KeyValue last = rows.get(rows.size() - 1);
        Tuple clear = Tuple.fromBytes(last.getValue()).getNestedTuple(0);
        check(clear.getLong(0) == 1 && Arrays.equals(clear.getBytes(2), bytes("stream0")));
        byte[] key = last.getKey();
        byte[] position = Arrays.copyOfRange(key, key.length - 12, key.length);
        byte[] consumer = special("stream_consumers/tour/java");
        db.run(tr -> {
            tr.options().setSpecialKeySpaceEnableWrites();
            tr.set(special("stream_append/log"), bytes("noted"));
            tr.set(consumer, position);
            return null;
        });
        check(Arrays.equals(db.read(tr -> tr.get(consumer).join()), position));
        List<KeyValue> log = entries(db, "log");
        check(log.size() == 1 && Arrays.equals(log.get(0).getValue(), bytes("noted")));
    }

    static void inFlightWhileAServerDies(Database db) throws java.io.IOException {
        System.out.println("ready");
        System.in.read();
        List<CompletableFuture<Void>> flying = new ArrayList<>();
        for (int i = 0; i < 1000; i++) {
            byte[] key = bytes("flight/" + i);
            flying.add(db.runAsync(tr -> {
                tr.set(key, NOTHING);
                return CompletableFuture.completedFuture(null);
            }));
        }
        flying.forEach(CompletableFuture::join);
        check(db.read(tr -> tr.getRange(Range.startsWith(bytes("flight/"))).asList().join()).size() == 1000);
    }

    public static void main(String[] arguments) throws Exception {
        FDB fdb = FDB.selectAPIVersion(Integer.parseInt(arguments[1]));
        try (Database db = fdb.open(arguments[0])) {
            db.options().setTransactionTimeout(60_000);
            keysAndRanges(db);
            writesAndConflicts(db);
            stampsAndWatches(db);
            layersAndTenants(db);
            limits(db);
            streams(db);
            inFlightWhileAServerDies(db);
        }
        System.out.println("done");
    }
}
