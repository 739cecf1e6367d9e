package plinth.keeper.histories;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

/**
 * Histories FILE SEED SERVER … - clients that ask for all kinds of things of the same few nodes, each at one of the servers,
 * or going from one to another.
 *
 * <p>Does what run-histories says, a line each: "progress" tells what each client has done so far, "stop" ends everything.
 */
public final class Histories {
    private static final int CLIENTS_OF_SERVER = 3;
    private static final int CLIENTS_OF_ALL = 2;
    /** A session that hears nothing for four seconds is over; the others outlive a server that comes back. */
    private static final int[] TIMEOUTS_MS = {4_000, 12_000};
    private static final int PAUSE_MS = 25;
    private static final long LEFT_MS = 60_000;

    private final Notes notes;
    private final long seed;
    private final List<Thread> threads = new ArrayList<>();
    private final List<AtomicLong> progress = new ArrayList<>();
    private volatile boolean isOver;
    private volatile Throwable failure;

    private Histories(Path file, long seed) throws Exception {
        notes = new Notes(file);
        this.seed = seed;
    }

    public static void main(String[] arguments) throws Exception {
        Histories histories = new Histories(Path.of(arguments[0]), Long.parseLong(arguments[1]));
        List<String> servers = List.of(arguments).subList(2, arguments.length);
        histories.begin(servers);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = "ok " + histories.carryOut(line, servers);
            } catch (Exception failure) {
                answer = "error " + failure;
            }
            System.out.println(answer.replace('\n', ' '));
        }
        Runtime.getRuntime().halt(0);
    }

    private String carryOut(String word, List<String> servers) throws Exception {
        if (word.equals("stop")) {
            stop(servers);
        }
        if (failure != null) {
            throw new IllegalStateException(failure);
        }
        return word.equals("stop") ? notes.answers + " " + notes.losses
            : progress.stream().map(String::valueOf).collect(Collectors.joining(" "));
    }

    private void begin(List<String> servers) throws Exception {
        String all = String.join(",", servers);
        Session first = Session.open(notes, all, TIMEOUTS_MS[1]);
        if (first.keeper.exists(Draw.BASE, false) != null) {
            throw new IllegalStateException(Draw.BASE + " is there already");
        }
        new Draw(new Random(seed), notes).createBase(first);
        first.close();
        for (String server : servers) {
            thread(() -> observe(server));
            for (int i = 0; i < CLIENTS_OF_SERVER; i++) {
                client(server);
            }
        }
        for (int i = 0; i < CLIENTS_OF_ALL; i++) {
            client(all);
        }
    }

    private interface Life {
        void live() throws Exception;
    }

    private void thread(Life life) {
        Thread thread = new Thread(() -> {
            try {
                life.live();
            } catch (Throwable thrown) {
                failure = thrown;
            }
        });
        threads.add(thread);
        thread.start();
    }

    private void client(String servers) {
        int number = progress.size();
        AtomicLong count = new AtomicLong();
        progress.add(count);
        Random random = new Random(seed * 1000 + number);
        thread(() -> {
            Draw draw = new Draw(random, notes);
            while (!isOver) {
                Session session = Session.open(notes, servers, TIMEOUTS_MS[number % TIMEOUTS_MS.length]);
                while (!isOver && !session.isOver() && random.nextInt(100) > 0) {
                    draw.burst(session);
                    count.incrementAndGet();
                    Thread.sleep(random.nextInt(PAUSE_MS));
                }
                if (isOver) {
                    readAll(session, Draw.names());
                }
                session.close();
            }
        });
    }

    /** Hears of everything, and asks again and again how far the server is. */
    private void observe(String server) throws Exception {
        while (!isOver) {
            Session session = Session.open(notes, server, TIMEOUTS_MS[1]);
            session.watchAll(Draw.BASE);
            while (!isOver && !session.isOver()) {
                session.one("exists", Draw.BASE, (asked, answer) ->
                    session.keeper.exists(Draw.BASE, null, (rc, at, context, stat) -> answer.is(rc), asked));
                Thread.sleep(PAUSE_MS);
            }
            readAll(session, Draw.names());
            session.close();
        }
    }

    private static void readAll(Session session, List<String> paths) throws InterruptedException {
        for (String path : paths) {
            if (!session.isOver()) {
                Draw.readAll(session, path);
            }
        }
    }

    /** Lets the clients end, and reads what is there until no session has nodes any more. */
    private void stop(List<String> servers) throws Exception {
        isOver = true;
        for (Thread thread : threads) {
            thread.join();
        }
        long end = System.nanoTime() + LEFT_MS * 1_000_000;
        for (List<String> left = null; left == null || !left.isEmpty();) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("nodes of sessions that are over: " + left);
            }
            // Each server in its turn has to say so.
            left = new ArrayList<>();
            for (String server : servers) {
                Session session = Session.open(notes, server, TIMEOUTS_MS[1]);
                readAll(session, Draw.names());
                for (String path : Draw.names()) {
                    addEphemerals(session, path, left);
                }
                session.close();
            }
        }
        notes.close();
    }

    /** Adds a node that is some session's, and those below it. */
    private static void addEphemerals(Session session, String path, List<String> ephemerals) throws Exception {
        Stat stat = session.keeper.exists(path, false);
        // Containers and nodes with a time to live have owners, too.
        if (stat != null && stat.getEphemeralOwner() > 0) {
            ephemerals.add(path);
        }
        try {
            for (String name : session.keeper.getChildren(path, false)) {
                addEphemerals(session, path + "/" + name, ephemerals);
            }
        } catch (KeeperException.NoNodeException | KeeperException.NoAuthException unseen) {
            // Removed meanwhile, or a list of children that nobody may read.
            return;
        }
    }
}
