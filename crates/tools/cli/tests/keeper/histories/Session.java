package plinth.keeper.histories;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.NotedClient;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;

/** A session, and a line for each thing that it is told, in the order in which the client's thread tells them. */
final class Session implements Watcher {
    /** A server that lets a client wait longer than this is not taken for one that serves. */
    static final long PATIENCE_S = 90;
    private static final AtomicLong COUNT = new AtomicLong();
    /** What was asked has no answer, and nothing more will have one. */
    private static final int EXPIRED = Code.SESSIONEXPIRED.intValue();

    final String name = "s" + COUNT.incrementAndGet();
    final NotedClient keeper;
    private final Notes notes;
    private final CountDownLatch begun = new CountDownLatch(1);
    private volatile boolean isOver;

    /** The library gives up by itself what has no connection for four thirds of its time-out: then there is another one. */
    static Session open(Notes notes, String servers, int timeoutMs) throws Exception {
        Session session = new Session(notes, servers, timeoutMs);
        while (session.isOver()) {
            session.close();
            session = new Session(notes, servers, timeoutMs);
        }
        return session;
    }

    private Session(Notes notes, String servers, int timeoutMs) throws Exception {
        this.notes = notes;
        synchronized (this) {
            keeper = new NotedClient(servers, timeoutMs, this);
        }
        if (!begun.await(PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(name + " has no connection to " + servers);
        }
    }

    boolean isOver() {
        return isOver;
    }

    /** What happens to the connection, which may be told before the constructor has the client. */
    @Override
    public synchronized void process(WatchedEvent event) {
        if (event.getState() == Event.KeeperState.SyncConnected) {
            notes.line("{\"session\":\"" + name + "\",\"state\":\"connected\",\"owner\":" + keeper.getSessionId()
                + ",\"timeout\":" + keeper.getSessionTimeout() + ",\"at\":" + notes.now() + "}");
            begun.countDown();
        } else {
            isOver |= event.getState() == Event.KeeperState.Expired;
            notes.line("{\"session\":\"" + name + "\",\"state\":\"" + event.getState() + "\",\"at\":" + notes.now() + "}");
            if (isOver) {
                begun.countDown();
            }
        }
    }

    /** A watcher of its own for each request, so that it is known which of them are told of a change. */
    Watcher watcher(Asked asked) {
        long number = notes.number();
        asked.put("watch", number);
        return event -> {
            if (event.getType() != Event.EventType.None) {
                notes.line("{\"session\":\"" + name + "\",\"event\":\"" + event.getType() + "\",\"watch\":" + number
                    + ",\"path\":\"" + event.getPath() + "\",\"zxid\":" + event.getZxid() + ",\"at\":" + notes.now() + "}");
            }
        };
    }

    /** Watches everything below a node, for good. */
    void watchAll(String path) throws InterruptedException {
        one("watch all", path, (asked, answer) -> keeper.addWatch(path, watcher(asked), AddWatchMode.PERSISTENT_RECURSIVE,
            (rc, at, context) -> answer.is(rc), asked));
    }

    void one(String kind, String path, Request request) throws InterruptedException {
        CountDownLatch answers = new CountDownLatch(1);
        send(new Asked(kind, path), request, answers);
        await(answers);
    }

    interface Request {
        void send(Asked asked, Answer answer);
    }

    interface Answer {
        void is(int rc);
    }

    /** Sends a request. Its line is written when it is answered, or when it is known that no answer will come. */
    void send(Asked asked, Request request, CountDownLatch answers) {
        long began = notes.now();
        request.send(asked, rc -> {
            isOver |= rc == EXPIRED;
            notes.answered(rc);
            notes.line(asked.answered(name, began, notes.now(), rc));
            answers.countDown();
        });
    }

    void await(CountDownLatch answers) throws InterruptedException {
        if (!answers.await(PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(name + " waits for answers for " + PATIENCE_S + " s");
        }
    }

    void close() throws InterruptedException {
        long began = notes.now();
        boolean isAlive = keeper.getState() != ZooKeeper.States.CLOSED && !isOver;
        keeper.close((int) TimeUnit.SECONDS.toMillis(PATIENCE_S));
        notes.line("{\"session\":\"" + name + "\",\"state\":\"" + (isAlive ? "closed" : "left") + "\",\"began\":" + began
            + ",\"at\":" + notes.now() + ",\"zxid\":" + keeper.closedAt() + "}");
    }
}
