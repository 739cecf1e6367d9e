import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.ZKClientConfig;
import org.apache.zookeeper.data.ClientInfo;

/**
 * Secure HOST:PORT TRUSTED.pem OWN.pem PROTOCOL PATH: ZooKeeper's own client at the secure port of a keeper. OWN is
 * '-' for a client that has no certificate. Tells who it is, makes a node of its own, and reads PATH.
 */
public class Secure {
    public static void main(String[] arguments) throws Exception {
        ZKClientConfig config = new ZKClientConfig();
        config.setProperty("zookeeper.client.secure", "true");
        config.setProperty("zookeeper.clientCnxnSocket", "org.apache.zookeeper.ClientCnxnSocketNetty");
        config.setProperty("zookeeper.ssl.trustStore.location", arguments[1]);
        config.setProperty("zookeeper.ssl.trustStore.type", "PEM");
        if (!arguments[2].equals("-")) {
            config.setProperty("zookeeper.ssl.keyStore.location", arguments[2]);
            config.setProperty("zookeeper.ssl.keyStore.type", "PEM");
        }
        config.setProperty("zookeeper.ssl.protocol", arguments[3]);
        config.setProperty("zookeeper.ssl.enabledProtocols", arguments[3]);
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper zk = new ZooKeeper(arguments[0], 10_000, event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            }
        }, config);
        if (!connected.await(10, TimeUnit.SECONDS)) {
            System.out.println("refused");
            System.exit(0);
        }
        for (ClientInfo info : zk.whoAmI()) {
            System.out.println("is " + info.getAuthScheme() + ":" + info.getUser());
        }
        String own = arguments[4] + "-" + arguments[3];
        try {
            zk.create(own, "own".getBytes(), Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
            System.out.println("made for " + zk.getACL(own, null).get(0).getId().getId());
        } catch (KeeperException.InvalidACLException e) {
            System.out.println("is nobody");
        }
        try {
            System.out.println("read " + new String(zk.getData(arguments[4], false, null)));
        } catch (KeeperException.NoAuthException e) {
            System.out.println("no auth");
        }
        zk.close();
        System.exit(0);
    }
}
