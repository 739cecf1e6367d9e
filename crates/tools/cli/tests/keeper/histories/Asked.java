package plinth.keeper.histories;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.zookeeper.NotedClient;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.proto.ReplyHeader;

/** A request, or one of a multi: what was asked, and then what was answered. It becomes an object of JSON. */
final class Asked implements NotedClient.WantsHeader {
    private final StringBuilder text = new StringBuilder("{");
    final List<Asked> parts = new ArrayList<>();
    final String path;
    private ReplyHeader header;

    Asked(String kind, String path) {
        this.path = path;
        put("do", kind);
        put("path", path);
    }

    @Override
    public void takeHeader(ReplyHeader header) {
        this.header = header;
    }

    private StringBuilder key(String key) {
        return text.append(text.length() > 1 ? ",\"" : "\"").append(key).append("\":");
    }

    /** Nothing that is noted has a character which JSON would have to escape. */
    Asked put(String key, String value) {
        key(key).append('"').append(value).append('"');
        return this;
    }

    Asked put(String key, long value) {
        key(key).append(value);
        return this;
    }

    private void put(String key, List<String> values) {
        key(key).append(values.isEmpty() ? "[]" : "[\"" + String.join("\",\"", values) + "\"]");
    }

    Asked stat(Stat stat) {
        if (stat != null) {
            key("stat").append(List.of(stat.getCzxid(), stat.getMzxid(), stat.getPzxid(), stat.getVersion(),
                stat.getCversion(), stat.getAversion(), stat.getEphemeralOwner(), stat.getDataLength(),
                stat.getNumChildren()));
        }
        return this;
    }

    Asked data(byte[] data) {
        if (data != null) {
            put("data", Data.nameOf(data));
            put("length", data.length);
        }
        return this;
    }

    Asked children(List<String> children) {
        if (children != null) {
            put("children", children);
        }
        return this;
    }

    Asked acl(List<ACL> acl) {
        if (acl != null) {
            // Who may not administer the node sees no more than the name.
            put("acl", acl.size() < 2 ? "" : acl.get(1).getId().getId().split(":")[0]);
        }
        return this;
    }

    void results(List<OpResult> results) {
        for (int i = 0; results != null && i < results.size(); i++) {
            OpResult result = results.get(i);
            Asked part = parts.get(i);
            if (result instanceof OpResult.ErrorResult) {
                part.put("rc", ((OpResult.ErrorResult) result).getErr());
                continue;
            }
            part.put("rc", 0);
            if (result instanceof OpResult.CreateResult) {
                part.put("made", ((OpResult.CreateResult) result).getPath());
                part.stat(((OpResult.CreateResult) result).getStat());
            } else if (result instanceof OpResult.SetDataResult) {
                part.stat(((OpResult.SetDataResult) result).getStat());
            } else if (result instanceof OpResult.GetDataResult) {
                part.data(((OpResult.GetDataResult) result).getData());
                part.stat(((OpResult.GetDataResult) result).getStat());
            } else if (result instanceof OpResult.GetChildrenResult) {
                part.children(((OpResult.GetChildrenResult) result).getChildren());
            }
        }
    }

    /** The whole line. The zxid is that of the answer's header; 0 if there was no answer. */
    String answered(String session, long began, long ended, int rc) {
        put("session", session);
        put("began", began);
        put("ended", ended);
        put("rc", rc);
        put("zxid", header == null ? 0 : header.getZxid());
        if (!parts.isEmpty()) {
            key("parts").append('[');
            for (Asked part : parts) {
                text.append(part.text).append("},");
            }
            text.setCharAt(text.length() - 1, ']');
        }
        return text.append('}').toString();
    }

    /** Data that can be told from all other data: a name, and bytes that follow from it. */
    static final class Data {
        private Data() { }

        static byte[] of(String name, int length) {
            StringBuilder data = new StringBuilder(name).append(':').append(length).append(':');
            while (data.length() < length) {
                data.append((char) ('a' + data.length() % 23));
            }
            return data.toString().getBytes(StandardCharsets.UTF_8);
        }

        /** "damaged" if the data has no name, or is not all there. */
        static String nameOf(byte[] data) {
            String[] words = new String(data, StandardCharsets.UTF_8).split(":", 3);
            boolean isWhole = words.length == 3 && words[1].matches("[0-9]{1,7}")
                && Arrays.equals(of(words[0], Integer.parseInt(words[1])), data);
            return isWhole ? words[0] : "damaged";
        }
    }
}
