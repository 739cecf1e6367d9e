package plinth.keeper.histories;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.NotedClient;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooDefs.Perms;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;

/** Draws what a client asks for. All clients ask for the same few nodes. */
final class Draw {
    static final String BASE = "/h";
    private static final String[] NAMES = {"a", "b", "c", "a/x", "a/y", "b/x"};
    private static final String[] LISTS = {"a", "b"};
    private static final int[] LENGTHS = {0, 0, 0, 0, 100, 2_000, 2_000, 60_000};
    private static final long TTL_MS = 500;
    private static final CreateMode[] MODES = {
        CreateMode.PERSISTENT, CreateMode.PERSISTENT, CreateMode.PERSISTENT, CreateMode.EPHEMERAL, CreateMode.EPHEMERAL,
        CreateMode.EPHEMERAL, CreateMode.PERSISTENT_SEQUENTIAL, CreateMode.EPHEMERAL_SEQUENTIAL, CreateMode.CONTAINER,
        CreateMode.PERSISTENT_WITH_TTL,
    };
    /** Versions that somebody has seen, of the data and of the access list, so that some conditional writes succeed. */
    private static final Map<String, int[]> SEEN = new ConcurrentHashMap<>();
    private static final Set<String> NUMBERED = ConcurrentHashMap.newKeySet();

    private final Random random;
    private final Notes notes;

    Draw(Random random, Notes notes) {
        this.random = random;
        this.notes = notes;
    }

    /** Sends some requests at once, and waits until all have their answers. */
    void burst(Session session) throws InterruptedException {
        int count = 1 + random.nextInt(5);
        CountDownLatch answers = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            send(session, answers);
        }
        session.await(answers);
    }

    private void send(Session session, CountDownLatch answers) {
        int drawn = random.nextInt(20);
        if (drawn < 4) {
            create(session, answers);
        } else if (drawn < 6) {
            delete(session, answers);
        } else if (drawn < 9) {
            setData(session, answers);
        } else if (drawn < 10) {
            setAcl(session, answers);
        } else if (drawn < 13) {
            multi(session, answers);
        } else if (drawn < 14) {
            multiRead(session, answers);
        } else if (drawn < 15) {
            session.send(new Asked("sync", BASE), (asked, answer) ->
                session.keeper.sync(BASE, (rc, path, context) -> answer.is(rc), asked), answers);
        } else if (drawn < 16) {
            getAcl(session, answers, anyPath());
        } else if (drawn < 17) {
            exists(session, answers, anyPath());
        } else if (drawn < 19) {
            getData(session, answers, anyPath(), random.nextBoolean());
        } else {
            getChildren(session, answers, random.nextInt(3) == 0 ? BASE : path(), random.nextBoolean());
        }
    }

    private String path() {
        return BASE + "/" + NAMES[random.nextInt(NAMES.length)];
    }

    private String anyPath() {
        String numbered = random.nextInt(5) == 0 ? NUMBERED.stream().findAny().orElse(null) : null;
        return numbered == null ? path() : numbered;
    }

    private static void saw(String path, Stat stat) {
        if (stat != null) {
            SEEN.put(path, new int[] {stat.getVersion(), stat.getAversion()});
        }
    }

    private int version(String path, int which) {
        int[] seen = SEEN.get(path);
        return seen == null || random.nextBoolean() ? -1 : seen[which];
    }

    /** Everybody may always read, or watches would tell less, and set another list. */
    private List<ACL> acl(Asked asked) {
        List<ACL> acl = new ArrayList<>(Ids.OPEN_ACL_UNSAFE);
        if (random.nextInt(10) == 0) {
            int[] withheld = {Perms.WRITE, Perms.CREATE, Perms.DELETE};
            acl.set(0, new ACL(Perms.ALL & ~withheld[random.nextInt(withheld.length)], Ids.ANYONE_ID_UNSAFE));
        }
        String name = "l" + notes.number();
        asked.put("list", name);
        acl.add(new ACL(Perms.READ, new Id("digest", name + ":x")));
        return acl;
    }

    private byte[] data(Asked asked) {
        String name = "w" + notes.number();
        byte[] data = Asked.Data.of(name, LENGTHS[random.nextInt(LENGTHS.length)]);
        asked.put("writes", name);
        return data;
    }

    private CreateMode mode(Asked asked, CreateMode mode) {
        asked.put("mode", mode.name());
        if (mode.isTTL()) {
            asked.put("ttl", TTL_MS);
        }
        return mode;
    }

    private String numbered() {
        return BASE + "/" + LISTS[random.nextInt(LISTS.length)] + "/n-";
    }

    private static void made(String path, CreateMode mode) {
        if (mode.isSequential() && path != null && NUMBERED.size() < 6) {
            NUMBERED.add(path);
        }
    }

    void createBase(Session session) throws InterruptedException {
        CountDownLatch answers = new CountDownLatch(1);
        create(session, answers, BASE, CreateMode.PERSISTENT, true);
        session.await(answers);
    }

    private void create(Session session, CountDownLatch answers) {
        CreateMode mode = MODES[random.nextInt(MODES.length)];
        boolean wantsStat = mode.isContainer() || mode.isTTL() || random.nextBoolean();
        create(session, answers, mode.isSequential() ? numbered() : path(), mode, wantsStat);
    }

    private void create(Session session, CountDownLatch answers, String path, CreateMode mode, boolean wantsStat) {
        session.send(new Asked("create", path), (asked, answer) -> {
            mode(asked, mode);
            byte[] data = data(asked);
            List<ACL> acl = path.equals(BASE) ? Ids.OPEN_ACL_UNSAFE : acl(asked);
            if (wantsStat) {
                session.keeper.create(path, data, acl, mode, (rc, at, context, name, stat) -> {
                    saw(path, stat);
                    made(name, mode);
                    asked.put("made", String.valueOf(name)).stat(stat);
                    answer.is(rc);
                }, asked, mode.isTTL() ? TTL_MS : -1);
            } else {
                session.keeper.create(path, data, acl, mode, (rc, at, context, name) -> {
                    made(name, mode);
                    asked.put("made", String.valueOf(name));
                    answer.is(rc);
                }, asked);
            }
        }, answers);
    }

    private void delete(Session session, CountDownLatch answers) {
        String path = anyPath();
        int version = version(path, 0);
        NUMBERED.remove(path);
        session.send(new Asked("delete", path).put("version", version), (asked, answer) ->
            session.keeper.delete(path, version, (rc, at, context) -> answer.is(rc), asked), answers);
    }

    private void setData(Session session, CountDownLatch answers) {
        String path = anyPath();
        int version = version(path, 0);
        session.send(new Asked("set", path).put("version", version), (asked, answer) ->
            session.keeper.setData(path, data(asked), version, (rc, at, context, stat) -> {
                saw(path, stat);
                asked.stat(stat);
                answer.is(rc);
            }, asked), answers);
    }

    private void setAcl(Session session, CountDownLatch answers) {
        String path = anyPath();
        int version = version(path, 1);
        session.send(new Asked("set list", path).put("version", version), (asked, answer) ->
            session.keeper.setACL(path, acl(asked), version, (rc, at, context, stat) -> {
                saw(path, stat);
                asked.stat(stat);
                answer.is(rc);
            }, asked), answers);
    }

    private void multi(Session session, CountDownLatch answers) {
        Asked all = new Asked("multi", "");
        List<Op> operations = new ArrayList<>();
        Set<String> paths = new HashSet<>();
        int count = 2 + random.nextInt(3);
        for (int i = 0; i < count; i++) {
            String path = path();
            // What becomes of a node that two parts of one transaction write, the order of answers does not tell.
            if (paths.add(path)) {
                operations.add(part(all, path));
            }
        }
        session.send(all, (asked, answer) -> session.keeper.multi(operations, (rc, at, context, results) -> {
            asked.results(results);
            answer.is(rc);
        }, asked), answers);
    }

    private Op part(Asked all, String path) {
        int drawn = random.nextInt(8);
        Asked part = new Asked(drawn < 3 ? "create" : drawn < 4 ? "delete" : drawn < 6 ? "check" : "set", path);
        all.parts.add(part);
        if (drawn < 3) {
            CreateMode mode = mode(part, MODES[random.nextInt(6)]);
            return Op.create(path, data(part), acl(part), mode);
        }
        int version = version(path, 0);
        part.put("version", version);
        return drawn < 4 ? Op.delete(path, version) : drawn < 6 ? Op.check(path, version)
            : Op.setData(path, data(part), version);
    }

    private void multiRead(Session session, CountDownLatch answers) {
        Asked all = new Asked("multi read", "");
        List<Op> operations = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            String path = path();
            boolean isData = random.nextInt(3) > 0;
            all.parts.add(new Asked(isData ? "get" : "list", path));
            operations.add(isData ? Op.getData(path) : Op.getChildren(path));
        }
        session.send(all, (asked, answer) -> session.keeper.multi(operations, (rc, at, context, results) -> {
            asked.results(results);
            answer.is(rc);
        }, asked), answers);
    }

    static void getAcl(Session session, CountDownLatch answers, String path) {
        session.send(new Asked("get list", path), (asked, answer) ->
            session.keeper.getACL(path, new Stat(), (rc, at, context, acl, stat) -> {
                asked.acl(acl).stat(stat);
                answer.is(rc);
            }, asked), answers);
    }

    private void exists(Session session, CountDownLatch answers, String path) {
        session.send(new Asked("exists", path), (asked, answer) -> {
            Watcher watcher = random.nextBoolean() ? session.watcher(asked) : null;
            session.keeper.exists(path, watcher, (rc, at, context, stat) -> {
                saw(path, stat);
                asked.stat(stat);
                answer.is(rc);
            }, asked);
        }, answers);
    }

    static void getData(Session session, CountDownLatch answers, String path, boolean watches) {
        session.send(new Asked("get", path), (asked, answer) ->
            session.keeper.getData(path, watches ? session.watcher(asked) : null, (rc, at, context, data, stat) -> {
                saw(path, rc == 0 ? stat : null);
                asked.data(data).stat(rc == 0 ? stat : null);
                answer.is(rc);
            }, asked), answers);
    }

    static void getChildren(Session session, CountDownLatch answers, String path, boolean watches) {
        session.send(new Asked("list", path), (asked, answer) ->
            session.keeper.getChildren(path, watches ? session.watcher(asked) : null, (rc, at, context, names, stat) -> {
                asked.children(names).stat(rc == 0 ? stat : null);
                answer.is(rc);
            }, asked), answers);
    }

    /** All that can be read of a node, after a sync. */
    static void readAll(Session session, String path) throws InterruptedException {
        CountDownLatch answers = new CountDownLatch(4);
        session.send(new Asked("sync", path), (asked, answer) ->
            session.keeper.sync(path, (rc, at, context) -> answer.is(rc), asked), answers);
        getData(session, answers, path, false);
        getChildren(session, answers, path, false);
        getAcl(session, answers, path);
        session.await(answers);
    }

    static List<String> names() {
        List<String> names = new ArrayList<>(List.of(BASE));
        for (String name : NAMES) {
            names.add(BASE + "/" + name);
        }
        return names;
    }
}
