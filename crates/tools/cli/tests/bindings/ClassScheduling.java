// The class scheduling application of FoundationDB's tutorial: many students sign up for few seats at once.

import com.apple.foundationdb.Database;
import com.apple.foundationdb.FDB;
import com.apple.foundationdb.KeyValue;
import com.apple.foundationdb.Transaction;
import com.apple.foundationdb.TransactionContext;
import com.apple.foundationdb.tuple.Tuple;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletionException;

public class ClassScheduling {
    static final int SEATS = 20;
    static final int CLASSES_A_STUDENT = 5;

    static class Refused extends RuntimeException {
        private static final long serialVersionUID = 1;

        Refused(String why) {
            super(why);
        }
    }

    static byte[] seatsKey(String name) {
        return Tuple.from("class", name).pack();
    }

    static long seats(Transaction tr, String name) {
        return Tuple.fromBytes(tr.get(seatsKey(name)).join()).getLong(0);
    }

    static List<String> availableClasses(TransactionContext db) {
        return db.run(tr -> {
            List<String> names = new ArrayList<>();
            for (KeyValue row : tr.snapshot().getRange(Tuple.from("class").range())) {
                if (Tuple.fromBytes(row.getValue()).getLong(0) > 0) names.add(Tuple.fromBytes(row.getKey()).getString(1));
            }
            return names;
        });
    }

    static void signup(TransactionContext db, String student, String name) {
        db.run(tr -> {
            byte[] record = Tuple.from("attends", student, name).pack();
            if (tr.get(record).join() != null) return null;
            long left = seats(tr, name);
            if (left == 0) throw new Refused("no seats are left");
            int mine = tr.getRange(Tuple.from("attends", student).range()).asList().join().size();
            if (mine == CLASSES_A_STUDENT) throw new Refused("too many classes");
            tr.set(seatsKey(name), Tuple.from(left - 1).pack());
            tr.set(record, Tuple.from("").pack());
            return null;
        });
    }

    static void drop(TransactionContext db, String student, String name) {
        db.run(tr -> {
            byte[] record = Tuple.from("attends", student, name).pack();
            if (tr.get(record).join() == null) return null;
            tr.set(seatsKey(name), Tuple.from(seats(tr, name) + 1).pack());
            tr.clear(record);
            return null;
        });
    }

    static void swap(TransactionContext db, String student, String old, String other) {
        db.run(tr -> {
            drop(tr, student, old);
            signup(tr, student, other);
            return null;
        });
    }

    static void studentLife(Database db, int number, int moves, List<String> names) {
        Random choice = new Random(number);
        String student = "student" + number;
        for (int i = 0; i < moves; i++) {
            String one = names.get(choice.nextInt(names.size()));
            String other = names.get(choice.nextInt(names.size()));
            try {
                switch (choice.nextInt(3)) {
                    case 0 -> drop(db, student, one);
                    case 1 -> swap(db, student, one, other);
                    default -> signup(db, student, one);
                }
            } catch (Refused ignored) {
                // The next move may succeed.
            } catch (CompletionException e) {
                if (!(e.getCause() instanceof Refused)) throw e;
            }
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        FDB fdb = FDB.selectAPIVersion(730);
        try (Database db = fdb.open()) {
            List<String> names = new ArrayList<>();
            for (int hour = 2; hour < 20; hour++) {
                for (String subject : List.of("chem", "bio", "cs", "film", "music", "art")) names.add(hour + ":00 " + subject);
            }
            db.run(tr -> {
                tr.clear(Tuple.from("attends").range());
                tr.clear(Tuple.from("class").range());
                for (String name : names) tr.set(seatsKey(name), Tuple.from(SEATS).pack());
                return null;
            });
            if (!availableClasses(db).containsAll(names)) throw new AssertionError("classes are missing");
            List<Thread> students = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                int number = i;
                students.add(new Thread(() -> studentLife(db, number, 30, names.subList(0, 6))));
            }
            for (Thread student : students) student.start();
            for (Thread student : students) student.join();
            db.run(tr -> {
                Map<String, Integer> taken = new HashMap<>();
                for (KeyValue row : tr.getRange(Tuple.from("attends").range())) {
                    taken.merge(Tuple.fromBytes(row.getKey()).getString(2), 1, Integer::sum);
                }
                for (String name : names) {
                    long left = seats(tr, name);
                    if (left < 0 || left + taken.getOrDefault(name, 0) != SEATS) throw new AssertionError(name + ": " + left);
                }
                return null;
            });
        }
        System.out.println("done");
    }
}
