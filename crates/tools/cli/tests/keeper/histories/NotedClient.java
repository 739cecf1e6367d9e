package org.apache.zookeeper;

import java.io.IOException;
import org.apache.jute.Record;
import org.apache.zookeeper.client.HostProvider;
import org.apache.zookeeper.client.ZKClientConfig;
import org.apache.zookeeper.proto.ReplyHeader;
import org.apache.zookeeper.proto.RequestHeader;

/**
 * ZooKeeper's client as it is. It notes the header of each answer, with the zxid, which the interface does not hand out.
 * It stands in ZooKeeper's package because the connection can be had nowhere else.
 */
public final class NotedClient extends ZooKeeper {
    /** The context of a request that wants to know the header of its answer. */
    public interface WantsHeader {
        void takeHeader(ReplyHeader header);
    }

    // The constructor of ZooKeeper makes the connection before fields of this class have values.
    private volatile ReplyHeader closed;

    public NotedClient(String servers, int timeoutMs, Watcher watcher) throws IOException {
        super(servers, timeoutMs, watcher);
    }

    /** The zxid at which the session ended, if that was answered; 0 if it was not. */
    public long closedAt() {
        ReplyHeader header = closed;
        return header == null || header.getErr() != 0 ? 0 : header.getZxid();
    }

    @Override
    ClientCnxn createConnection(String root, HostProvider hosts, int timeoutMs, ZKClientConfig config, Watcher watcher,
            ClientCnxnSocket socket, boolean canBeReadOnly) throws IOException {
        return new ClientCnxn(root, hosts, timeoutMs, config, watcher, socket, canBeReadOnly) {
            @Override
            public Packet queuePacket(RequestHeader request, ReplyHeader header, Record asked, Record answer,
                    AsyncCallback callback, String clientPath, String serverPath, Object context,
                    WatchRegistration registration, WatchDeregistration deregistration) {
                if (context instanceof WantsHeader) {
                    ((WantsHeader) context).takeHeader(header);
                }
                return super.queuePacket(request, header, asked, answer, callback, clientPath, serverPath, context,
                    registration, deregistration);
            }

            @Override
            public ReplyHeader submitRequest(RequestHeader request, Record asked, Record answer,
                    WatchRegistration registration, WatchDeregistration deregistration) throws InterruptedException {
                ReplyHeader header = super.submitRequest(request, asked, answer, registration, deregistration);
                if (request.getType() == ZooDefs.OpCode.closeSession) {
                    closed = header;
                }
                return header;
            }
        };
    }
}
