#!/usr/bin/env python3
"""migration.py - what run-migration does with the servers on both sides.

  migration.py kinds HOST:PORT               a small tree with every kind of node, and every kind of transaction
  migration.py fill HOST:PORT NODES          a few thousand nodes of all kinds
  migration.py write HOST:PORT               changes nodes of all kinds until a signal comes, and prints how often; its
                                             ephemeral nodes stay until the next signal
  migration.py dump HOST:PORT FILE           every node, with data, access list and Stat, as JSON
  migration.py compare FILE FILE [--data]    do both have the same nodes? With --data, Stats may differ

The super user's password is "test". Ephemeral nodes of the first file may be missing in the second; then the numbers of
children are compared without them.
"""

import hashlib
import json
import pathlib
import random
import signal
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "oracle"))
import wire  # noqa: E402

OPEN = [(31, "world", "anyone")]
ONE = [(31, "digest", "one:lj6jV0CklO+B740yxtWS4XOn7ag="), (1, "world", "anyone")]
WINDOW = 200
CONFIG = "/zookeeper/config"
QUOTA = "/zookeeper/quota/"


class Client:
    """A session of the super user. Requests are pipelined."""

    def __init__(self, address):
        for attempt in range(100):
            self.wire = wire.Wire(address, 60)
            self.wire.send(wire.connect_request(0, 30000, 0, b"\0" * 16))
            try:
                self.wire.receive()
                break
            except wire.Closed:
                time.sleep(0.1)  # it reads its files
        self.xid = 0
        self.one("auth", wire.integer(0) + wire.string("digest") + wire.buffer(b"super:test"))

    def send(self, operation, body):
        self.xid += 1
        xid = wire.XIDS.get(operation, self.xid)
        self.wire.send(wire.integer(xid) + wire.integer(wire.OPERATIONS[operation]) + body)

    def receive(self, operation):
        while True:
            frame = self.wire.receive()
            xid, _, error = struct.unpack(">iqi", frame[:16])
            if xid not in (-1, -2):
                return error, wire.answer(operation, frame[16:]) if error == 0 else []

    def many(self, requests):
        """The answers, in order: (error, values)."""
        answers = []
        for at in range(0, len(requests), WINDOW):
            some = requests[at:at + WINDOW]
            for operation, body in some:
                self.send(operation, body)
            answers += [self.receive(operation) for operation, _ in some]
        return answers

    def one(self, operation, body):
        return self.many([(operation, body)])[0]

    def all(self, requests):
        """As many, but each has to succeed."""
        for request, (error, _) in zip(requests, self.many(requests)):
            if error:
                raise SystemExit("%s fails with %d: %s" % (request[0], error, request[1][:80]))


def create(path, data=b"", acl=OPEN, flags=0, ttl=None):
    body = wire.string(path) + wire.buffer(data) + wire.vector(acl, wire.acl) + wire.integer(flags)
    if ttl is not None:
        return "createTTL", body + wire.long(ttl)
    return ("createContainer" if flags == 4 else "create2" if flags & 1 else "create"), body


def delete(path, version=-1):
    return "delete", wire.string(path) + wire.integer(version)


def set_data(path, data, version=-1):
    return "setData", wire.string(path) + wire.buffer(data) + wire.integer(version)


def set_acl(path, acl):
    return "setACL", wire.string(path) + wire.vector(acl, wire.acl) + wire.integer(-1)


def read(operation, path):
    return operation, wire.string(path) + (b"" if operation == "getACL" else b"\0")


def multi(requests):
    parts = [struct.pack(">i?i", wire.OPERATIONS[name], False, -1) + body for name, body in requests]
    return "multi", b"".join(parts) + struct.pack(">i?i", -1, True, -1)


def kinds(address, stays=True):
    client, other = Client(address), Client(address)
    client.all([
        create("/kinds"), create("/kinds/ephemeral", b"e", flags=1), create("/kinds/container", None, flags=4),
        create("/kinds/container/child", b"c"), create("/kinds/ttl", b"t", flags=5, ttl=123456),
        create("/kinds/closed", b"secret", acl=ONE), create("/kinds/gone"), delete("/kinds/gone"),
        create("/kinds/s-", flags=2), create("/kinds/s-", flags=2),
        set_data("/kinds", b"new"), set_acl("/kinds/container/child", ONE),
        multi([create("/kinds/m"), set_data("/kinds/m", b"multi"), ("check", wire.string("/kinds") + wire.integer(-1))]),
    ])
    client.one(*multi([create("/kinds/never"), delete("/kinds/nothing")]))
    client.one(*create("/kinds/no/parent"))
    other.all([create("/kinds/ends-with-its-session", flags=1)])
    other.one("close", b"")
    if not stays:
        client.one("close", b"")  # otherwise its ephemeral node is left


def fill(address, nodes):
    client = Client(address)
    random.seed(1)
    kinds(address, stays=False)
    client.all([create(path) for path in ("/plain", "/deep", "/lists", "/sequence", "/large", "/often", "/many")])
    client.all([create("/plain/%05d" % i, random.choice([None, b"", b"x" * random.randrange(3000)])) for i in range(nodes)])
    path = "/deep"
    for level in range(60):
        path += "/level-%d" % level
        client.all([create(path, path.encode())])
    lists = [OPEN, ONE, [(1, "world", "anyone")], [(31, "ip", "10.0.0.0/8")], [(31, "world", "anyone"), (1, "ip", "1.2.3.4")]]
    client.all([create("/lists/%d" % i, b"", acl=lists[i % len(lists)]) for i in range(100)])
    client.all([set_acl("/lists/%d" % i, lists[(i + 1) % len(lists)]) for i in range(0, 100, 3)])
    client.all([create("/sequence/s-", flags=2) for _ in range(200)])
    client.all([delete("/sequence/s-%010d" % i) for i in range(0, 200, 2)])
    client.all([create("/large/%d" % i, bytes([65 + i]) * (1_000_000 - 300_000 * i)) for i in range(4)])
    client.all([set_data("/often", b"%d" % i) for i in range(500)])
    client.all([create("/many/%d" % i) for i in range(20)])
    client.all([create("/many/%d/%s-%d" % (i, "ü ~!", j), b"%d" % j) for i in range(20) for j in range(nodes // 20)])
    client.all([create("/many/container-%d" % i, flags=4) for i in range(30)])
    client.all([create("/many/container-%d/x" % i) for i in range(30)])
    client.all([create("/many/ttl-%d" % i, b"t", flags=5, ttl=10_000_000 + i) for i in range(30)])
    client.all([create("/zookeeper/quota/many"), create("/zookeeper/quota/many/zookeeper_limits", b"count=1000000,bytes=-1"),
                create("/zookeeper/quota/many/zookeeper_stats", b"count=0,bytes=0")])
    client.one("close", b"")


def write(address):
    """Changes of all kinds, about a thousand in a second, until a signal comes. Ephemeral nodes stay until the next."""
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
    signal.signal(signal.SIGINT, lambda *_: stopping.append(1))
    client = Client(address)
    client.all([create("/writer"), create("/writer/ephemeral", flags=1)])
    count, number = 0, 0
    while not stopping:
        number += 1
        spot = "/writer/%d" % (number % 300)
        some = [
            create(spot, b"%d" % number), set_data("/plain/%05d" % random.randrange(500), b"new %d" % number),
            create(spot + "/below", b"b"), set_data(spot, b"again"), set_acl("/lists/%d" % random.randrange(100), ONE),
            create("/writer/e-%d" % number, flags=1), create("/writer/container-%d" % (number % 50), flags=4),
            multi([create("/writer/m-%d" % number, b"m"), set_data("/often", b"%d" % number)]),
        ]
        if number % 3 == 0:
            some += [delete(spot + "/below"), delete(spot), delete("/writer/m-%d" % (number - 1)), delete("/writer/e-%d" % (number - 1))]
        count += sum(error == 0 for error, _ in client.many(some))
        time.sleep(0.005)
    print("%d changes" % count, flush=True)
    while len(stopping) < 2:
        client.one(*read("getData", "/writer"))
        time.sleep(1)


def dump(address, file):
    client = Client(address)
    found, left = {}, ["/"]
    while left:
        some, left = left[:2000], left[2000:]
        requests = [read(name, path) for path in some for name in ("getData", "getACL", "getChildren2")]
        answers = client.many(requests)
        for path, three in zip(some, zip(*[iter(answers)] * 3)):
            if any(error == -101 for error, _ in three):
                continue  # it went away meanwhile
            if any(error for error, _ in three):
                raise SystemExit("%s cannot be read: %s" % (path, three))
            (data, stat), (acl, _), (names, _) = (values for _, values in three)
            digest = None if data is None else hashlib.sha1(data).hexdigest()
            found[path] = {"data": digest, "acl": acl, "stat": stat}
            left += [(path if path != "/" else "") + "/" + name for name in names]
    with open(file, "w") as out:
        json.dump(found, out)
    client.one("close", b"")
    print("%d nodes" % len(found))


def plain(found):
    """Nodes that a migration moves, and how many are ephemeral."""
    ephemerals = {path for path, node in found.items() if node["stat"]["owner"]}
    nodes = {path: node for path, node in found.items() if path not in ephemerals and path != CONFIG}
    for path in ephemerals | {CONFIG}:
        parent = nodes.get(path.rsplit("/", 1)[0] or "/")
        if parent and path in found:
            stat = parent["stat"]
            stat["cversion"] += 1  # as if it had been deleted
            stat["children"] -= 1
    return nodes, len(ephemerals)


def compare(first, second, data_only):
    (one, ephemerals), (other, _) = (plain(json.load(open(file))) for file in (first, second))
    differences = []
    for path in sorted(one.keys() | other.keys()):
        a, b = one.get(path), other.get(path)
        if a is None or b is None:
            differences.append("%s is only in the %s" % (path, "second" if a is None else "first"))
            continue
        if path.startswith(QUOTA):
            a["data"] = b["data"] = a["stat"]["length"] = b["stat"]["length"] = 0
        if data_only:
            a["stat"], b["stat"] = a["stat"]["children"], b["stat"]["children"]
            a["data"] = a["data"] or hashlib.sha1(b"").hexdigest()
            b["data"] = b["data"] or hashlib.sha1(b"").hexdigest()
        if a != b:
            differences.append("%s\n    %s\n    %s" % (path, a, b))
    for line in differences[:10]:
        print(line)
    print("%d nodes, %d ephemeral nodes left out, %d differences" % (len(one), ephemerals, len(differences)))
    return 1 if differences or not one else 0


def main():
    action, *rest = sys.argv[1:] or ["help"]
    if action == "kinds":
        kinds(rest[0])
    elif action == "fill":
        fill(rest[0], int(rest[1]))
    elif action == "write":
        write(rest[0])
    elif action == "dump":
        dump(rest[0], rest[1])
    elif action == "compare":
        return compare(rest[0], rest[1], "--data" in rest)
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
