#!/usr/bin/env bash
# ZooKeeper's Java client 3.9.3 says `Expired' by itself, without a word of any server.
#
# One would think that only a server can say that a session has expired: a client that is cut off cannot know, and by
# ZooKeeper's programmer's guide the servers decide it, and the client learns of it when it comes back. Client 3.9.3 gives up after four thirds of the
# session's time-out without a connection: it delivers `Expired', and the handle is closed. The servers may have the
# session still: after a restart the leader counts its time-out from the beginning, and its ephemeral nodes are there.
#
# So who takes `Expired' for "my ephemeral nodes are gone, somebody else has my lock" is right about the second half only
# by chance: the old node may outlive the event. A recorded history must not take that event for a server's answer.
#
# Seen: org.apache.zookeeper:zookeeper 3.9.3, Java 17, a time-out of 6000 ms, no server running:
#   Expired 8.0 to 9.2 s after Disconnected; then, at the restarted server, the session's node is there.
# Needs java (17 or newer), mvn and a few minutes of downloads. Fails if any of this changes.
set -euo pipefail

for tool in java javac mvn; do
    command -v "$tool" >/dev/null || { echo "$tool is missing" >&2; exit 2; }
done
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"

cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId><version>3.9.3</version></dependency>
    <dependency><groupId>io.dropwizard.metrics</groupId><artifactId>metrics-core</artifactId><version>4.1.12.1</version></dependency>
    <dependency><groupId>org.xerial.snappy</groupId><artifactId>snappy-java</artifactId><version>1.1.10.5</version></dependency>
  </dependencies>
</project>
XML
mvn --batch-mode --quiet org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DoutputDirectory=lib

cat >Cut.java <<'JAVA'
import java.util.concurrent.CountDownLatch;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;

/** Makes an ephemeral node, says `ready', and tells what the library says of its connection. */
public class Cut {
    public static void main(String[] arguments) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        CountDownLatch expired = new CountDownLatch(1);
        long[] cut = {0};
        ZooKeeper client = new ZooKeeper(arguments[0], 6000, event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            } else if (event.getState() == KeeperState.Disconnected) {
                cut[0] = System.nanoTime();
                System.out.println("disconnected");
            } else if (event.getState() == KeeperState.Expired) {
                System.out.printf("expired %d%n", (System.nanoTime() - cut[0]) / 1_000_000);
                expired.countDown();
            }
        });
        connected.await();
        if (arguments.length > 1) {
            System.out.println(client.exists("/mine", false) == null ? "gone" : "there");
            System.exit(0);
        }
        client.create("/mine", null, Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        System.out.println("ready");
        expired.await();
        System.exit(0);
    }
}
JAVA
javac -cp 'lib/*' Cut.java

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
start() {
    java -Dzookeeper.admin.enableServer=false -cp 'lib/*' org.apache.zookeeper.server.ZooKeeperServerMain \
        "$port" data 1000 >>server.log 2>&1 &
    server=$!
}

start
java -cp 'lib/*:.' Cut "127.0.0.1:$port" >client.log 2>client.errors &
client=$!
for _ in $(seq 300); do
    ! grep -q ready client.log || break
    sleep 0.1
done
grep -q ready client.log || { echo "the client has not come to the server"; tail server.log client.errors; exit 1; }
kill -KILL "$server"
wait "$server" 2>/dev/null || true
server=
# Nobody listens there any more.
for _ in $(seq 300); do
    kill -0 "$client" 2>/dev/null || break
    sleep 0.1
done
took=$(sed -n 's/^expired //p' client.log)
[ -n "$took" ] || { echo "changed: no Expired within 30 s without a server"; cat client.log; exit 1; }
start
found=$(timeout 60 java -cp 'lib/*:.' Cut "127.0.0.1:$port" look 2>/dev/null | tail -n 1)
echo "no server ran; Expired after $took ms (time-out 6000 ms); at the restarted server the session's node is $found"
[ "$took" -ge 7000 ] && [ "$took" -le 12000 ] || { echo "changed: it was 8 to 9.2 s, four thirds of the time-out"; exit 1; }
[ "$found" = there ] || { echo "changed: the node was there still"; exit 1; }
