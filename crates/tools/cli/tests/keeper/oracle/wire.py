"""ZooKeeper's protocol as bytes: every field of every header, record and event is seen here, and nothing is hidden.

Records are read into plain values. Numbers that no two servers agree on are wrapped in a class of their own, so that
whoever compares can tell a transaction id from a version.
"""

import select
import socket
import struct
import time

OPERATIONS = {
    "create": 1, "delete": 2, "exists": 3, "getData": 4, "setData": 5, "getACL": 6, "setACL": 7, "getChildren": 8,
    "sync": 9, "ping": 11, "getChildren2": 12, "check": 13, "multi": 14, "create2": 15, "checkWatches": 17,
    "removeWatches": 18, "createContainer": 19, "deleteContainer": 20, "createTTL": 21, "multiRead": 22, "auth": 100,
    "setWatches": 101, "getEphemerals": 103, "getAllChildrenNumber": 104, "setWatches2": 105, "addWatch": 106,
    "whoAmI": 107, "close": -11,
}
# What a client numbers these requests with, whichever request they are.
XIDS = {"ping": -2, "auth": -4, "setWatches": -8, "setWatches2": -8}
EVENT_XID = -1
LONGEST_REPLY = 64 << 20
SLICE_SECONDS = 0.5


class Zxid(int):
    """The number of a transaction: compared by order and equality only."""


class Time(int):
    """Milliseconds of a server's clock."""


class Owner(int):
    """An ephemeral owner: a session, or the mark of a container or of a time to live."""


class Short(Exception):
    """A record ends too early."""


class Closed(Exception):
    """The server closed the connection."""


class Silent(Exception):
    """The server did not answer in time."""


def integer(value):
    return struct.pack(">i", value)


def long(value):
    return struct.pack(">q", value)


def boolean(value):
    return b"\1" if value else b"\0"


def buffer(value):
    return integer(-1) if value is None else integer(len(value)) + value


def string(value):
    return buffer(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)


def vector(values, write):
    return integer(-1) if values is None else integer(len(values)) + b"".join(map(write, values))


def acl(entry):
    permissions, scheme, name = entry
    return integer(permissions) + string(scheme) + string(name)


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, count):
        if count < 0 or self.at + count > len(self.data):
            raise Short
        self.at += count
        return self.data[self.at - count:self.at]

    def integer(self):
        return struct.unpack(">i", self.take(4))[0]

    def long(self):
        return struct.unpack(">q", self.take(8))[0]

    def boolean(self):
        return self.take(1)[0]

    def buffer(self):
        length = self.integer()
        return None if length == -1 else self.take(length)

    def string(self):
        value = self.buffer()
        return None if value is None else value.decode("utf-8", "backslashreplace")

    def vector(self, read):
        count = self.integer()
        if count == -1:
            return None
        if count < 0 or count > len(self.data):
            raise Short
        return [read() for _ in range(count)]

    def acl(self):
        return [self.integer(), self.string(), self.string()]

    def stat(self):
        czxid, mzxid, ctime, mtime = self.long(), self.long(), self.long(), self.long()
        version, cversion, aversion = self.integer(), self.integer(), self.integer()
        owner, length, children, pzxid = self.long(), self.integer(), self.integer(), self.long()
        return {
            "czxid": Zxid(czxid), "mzxid": Zxid(mzxid), "ctime": Time(ctime), "mtime": Time(mtime),
            "version": version, "cversion": cversion, "aversion": aversion, "owner": Owner(owner),
            "length": length, "children": children, "pzxid": Zxid(pzxid),
        }

    def names(self):
        """Names in no promised order."""
        found = self.vector(self.string)
        return None if found is None else sorted(found)

    def results(self):
        found = []
        while True:
            kind, done, error = self.integer(), self.boolean(), self.integer()
            if done:
                found.append(["end", kind, error])
                return found
            result = [kind, error]
            if kind == -1:
                result.append(self.integer())
            elif kind == 1:
                result.append(self.string())
            elif kind in (15, 19, 21):
                result += [self.string(), self.stat()]
            elif kind == 5:
                result.append(self.stat())
            elif kind == 4:
                result += [self.buffer(), self.stat()]
            elif kind == 8:
                result.append(self.names())
            elif kind not in (2, 13):
                raise Short
            found.append(result)


# What follows the header of an answer that is no error. Whatever is left over is compared too.
ANSWERS = {
    "create": lambda r: [r.string()],
    "create2": lambda r: [r.string(), r.stat()],
    "createContainer": lambda r: [r.string(), r.stat()],
    "createTTL": lambda r: [r.string(), r.stat()],
    "exists": lambda r: [r.stat()],
    "getData": lambda r: [r.buffer(), r.stat()],
    "setData": lambda r: [r.stat()],
    "getACL": lambda r: [r.vector(r.acl), r.stat()],
    "setACL": lambda r: [r.stat()],
    "getChildren": lambda r: [r.names()],
    "getChildren2": lambda r: [r.names(), r.stat()],
    "sync": lambda r: [r.string()],
    "multi": lambda r: r.results(),
    "multiRead": lambda r: r.results(),
    "getEphemerals": lambda r: [r.names()],
    "getAllChildrenNumber": lambda r: [r.integer()],
    "addWatch": lambda r: [r.integer()],
    "whoAmI": lambda r: [r.vector(lambda: [r.string(), r.string()])],
}


def answer(operation, body):
    """The values of an answer; what could not be read stays bytes."""
    if not body:
        return []
    reader = Reader(body)
    try:
        values = ANSWERS[operation](reader) if operation in ANSWERS else []
    except Short:
        return [["unreadable", body.hex()]]
    if reader.at < len(body):
        values.append(["left over", body[reader.at:].hex()])
    return values


def connect_request(zxid, timeout, session, password, read_only=False):
    return integer(0) + long(zxid) + integer(timeout) + long(session) + buffer(password) + boolean(read_only)


class Wire:
    """A connection that sends and receives whole frames."""

    def __init__(self, address, patience, meanwhile=lambda: None):
        """`meanwhile` is called again and again while nothing is received."""
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.patience = patience
        self.meanwhile = meanwhile
        self.received = b""

    def send(self, frame):
        try:
            self.socket.sendall(integer(len(frame)) + frame)
        except OSError:
            pass  # the next receive says that it is closed, after what came before

    def receive(self, patience=None):
        """The next frame."""
        until = time.monotonic() + (self.patience if patience is None else patience)
        while True:
            if len(self.received) >= 4:
                length = struct.unpack(">i", self.received[:4])[0]
                if not 0 <= length <= LONGEST_REPLY:
                    raise Closed
                if len(self.received) >= 4 + length:
                    frame = self.received[4:4 + length]
                    self.received = self.received[4 + length:]
                    return frame
            left = max(0, until - time.monotonic())
            if not select.select([self.socket], [], [], min(left, SLICE_SECONDS))[0]:
                if left <= SLICE_SECONDS:
                    raise Silent
                self.meanwhile()
                continue
            try:
                data = self.socket.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                raise Closed
            self.received += data

    def close(self):
        self.socket.close()
