package plinth.keeper;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.Collections;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import javax.management.JMException;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZKUtil;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.jmx.MBeanRegistry;
import org.apache.zookeeper.jmx.ZKMBeanInfo;
import org.apache.zookeeper.server.ServerCnxn;
import org.apache.zookeeper.server.ServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/**
 * The clients' port of a server that a test starts in its own process. ZooKeeper lets a setting name the class of it.
 *
 * <p>This one passes bytes on to another server, at OUTSIDE_SERVER. The server of the test runs as well, because tests
 * look whether it is there, but nobody speaks to it. A server in a new directory is expected to be empty: what the other
 * one holds is deleted then.
 */
public class Gate extends ServerCnxnFactory {
    private static final String OUTSIDE = System.getenv("OUTSIDE_SERVER");
    private static final Set<String> known = ConcurrentHashMap.newKeySet();

    private final Set<Socket> sockets = ConcurrentHashMap.newKeySet();
    private final Set<Session> sessions = ConcurrentHashMap.newKeySet();
    private InetSocketAddress address;
    private ServerSocket listener;
    private int most;
    private volatile boolean stopped;

    @Override
    public void configure(InetSocketAddress at, int mostClients, int backlog, boolean secure) throws IOException {
        listener = new ServerSocket();
        listener.setReuseAddress(true);
        listener.bind(at);
        address = new InetSocketAddress(at.getAddress(), listener.getLocalPort());
        most = mostClients;
    }

    @Override
    public void startup(ZooKeeperServer server, boolean start) throws IOException, InterruptedException {
        setZooKeeperServer(server);
        if (known.add(server.getTxnLogFactory().getSnapDir().getPath())) {
            empty();
        }
        start();
        server.startdata();
        server.startup();
    }

    @Override
    public void start() {
        thread("gate", () -> {
            while (true) {
                Socket client = listener.accept();
                thread("passes on", () -> pass(client));
            }
        });
    }

    private interface Work {
        void run() throws IOException;
    }

    private static Thread thread(String name, Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException end) {
                // Somebody closed it.
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private void pass(Socket client) throws IOException {
        int colon = OUTSIDE.lastIndexOf(':');
        try (client; Socket server = new Socket(OUTSIDE.substring(0, colon), Integer.parseInt(OUTSIDE.substring(colon + 1)))) {
            client.setTcpNoDelay(true);
            server.setTcpNoDelay(true);
            sockets.add(client);
            // Before the look whether the gate is shut: whoever shuts it ends all sessions that it finds.
            Session session = new Session();
            sessions.add(session);
            if (stopped) {
                sessions.remove(session);
                return;
            }
            Thread back = thread("passes back", () -> {
                try {
                    copy(server, client, session);
                } finally {
                    session.end();
                    sessions.remove(session);
                }
            });
            copy(client, server, null);
            // A client may say that it has no more to ask, and still wait for the answer.
            back.join();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        } finally {
            sockets.remove(client);
        }
    }

    /** What a server shows of a session for whoever manages it; tests wait until it is there, and until it is gone. */
    public interface SessionMXBean {
        String getSessionId();
    }

    private static final class Session implements SessionMXBean, ZKMBeanInfo {
        private String id;
        private boolean answered;
        private boolean over;

        /** The first answer of a connection grants a session. */
        synchronized void begin(byte[] answer, int length) throws IOException {
            ByteBuffer frame = ByteBuffer.wrap(answer);
            // The answer to four letters is text, which would be the length of a far too long one.
            long granted = answered || length < 20 || frame.getInt(0) > 1024 ? 0 : frame.getLong(12);
            answered = true;
            if (granted == 0 || over) {
                return;
            }
            id = "0x" + Long.toHexString(granted);
            try {
                MBeanRegistry.getInstance().register(this, null);
            } catch (JMException e) {
                // It moves from another connection, which still shows it.
            }
        }

        synchronized void end() {
            over = true;
            MBeanRegistry.getInstance().unregister(this);
        }

        @Override
        public String getSessionId() {
            return id;
        }

        @Override
        public String getName() {
            return id;
        }

        @Override
        public boolean isHidden() {
            return false;
        }
    }

    private static void copy(Socket from, Socket to, Session session) throws IOException {
        byte[] bytes = new byte[1 << 16];
        InputStream in = from.getInputStream();
        OutputStream out = to.getOutputStream();
        try {
            for (int count = in.read(bytes); count > 0; count = in.read(bytes)) {
                if (session != null) {
                    session.begin(bytes, count);
                }
                out.write(bytes, 0, count);
            }
        } finally {
            if (session == null) {
                to.shutdownOutput();
            } else {
                to.close();
            }
        }
    }

    /** Deletes everything but ZooKeeper's own nodes, as a user who may do so. */
    private static void empty() throws IOException, InterruptedException {
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper client = new ZooKeeper(OUTSIDE, 10000, event -> {
            if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        try {
            if (!connected.await(10, TimeUnit.SECONDS)) {
                throw new IOException("no connection to " + OUTSIDE);
            }
            client.addAuthInfo("digest", "super:test".getBytes());
            emptyBelow(client, "/");
        } catch (KeeperException e) {
            throw new IOException("the server could not be emptied", e);
        } finally {
            client.close();
        }
    }

    private static void emptyBelow(ZooKeeper client, String path) throws KeeperException, InterruptedException {
        for (String name : client.getChildren(path, false)) {
            String below = path.equals("/") ? "/" + name : path + "/" + name;
            if (below.equals("/zookeeper/quota")) {
                // Limits that a test set hold for the next one.
                emptyBelow(client, below);
            } else if (below.equals("/zookeeper")) {
                emptyBelow(client, "/zookeeper/quota");
            } else {
                try {
                    // Many at once: some tests leave ten thousands.
                    if (ZKUtil.deleteRecursive(client, below, 500)) {
                        continue;
                    }
                    emptyBelow(client, below);
                    client.delete(below, -1);
                } catch (KeeperException.NoNodeException gone) {
                    // The node of a session that ended meanwhile.
                }
            }
        }
    }

    @Override
    public void shutdown() {
        stopped = true;
        try {
            listener.close();
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
        closeAll(ServerCnxn.DisconnectReason.SERVER_SHUTDOWN);
        if (getZooKeeperServer() != null) {
            getZooKeeperServer().shutdown();
        }
    }

    @Override
    public void closeAll(ServerCnxn.DisconnectReason reason) {
        for (Socket socket : sockets) {
            try {
                socket.close();
            } catch (IOException e) {
                // It is closed, then.
            }
        }
        // A server shows none of those that it has closed, however long the other one takes to hear of it.
        for (Session session : sessions) {
            session.end();
        }
    }

    @Override
    public void join() throws InterruptedException {
        while (!stopped) {
            Thread.sleep(100);
        }
    }

    @Override
    public int getLocalPort() {
        return address.getPort();
    }

    @Override
    public InetSocketAddress getLocalAddress() {
        return address;
    }

    @Override
    public Iterable<ServerCnxn> getConnections() {
        return Collections.emptySet();
    }

    @Override
    public void reconfigure(InetSocketAddress at) {
        throw new UnsupportedOperationException("a gate stays where it is");
    }

    @Override
    public int getMaxClientCnxnsPerHost() {
        return most;
    }

    @Override
    public void setMaxClientCnxnsPerHost(int clients) {
        most = clients;
    }

    @Override
    public int getSocketListenBacklog() {
        return -1;
    }

    @Override
    public void resetAllConnectionStats() {}

    @Override
    public Iterable<Map<String, Object>> getAllConnectionInfo(boolean brief) {
        return Collections.emptyList();
    }
}
