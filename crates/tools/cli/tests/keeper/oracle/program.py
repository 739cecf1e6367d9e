"""Random programs: lists of steps, each a plain dictionary. A seed and a length decide everything."""

import random

from side import ACLS, USERS

# A path that begins with "~" lies below the node of the program, one that begins with "!" is taken as it is.
NAMES = ["a", "b", "c", "d"]
PATHS = (
    ["~"] + ["~/" + name for name in NAMES] + ["~/%s/%s" % (x, y) for x in NAMES[:2] for y in ("x", "y")]
    + ["~/a/x/1", "~/a/x/2", "~/a/x/1/deep", "~/ä", "~/" + "n" * 40]
)
SEQUENTIAL = ["~/s", "~/a/s", "~/a/", "~/b/x-"]
NUMBERED = ["%s%010d" % (prefix, number) for prefix in SEQUENTIAL for number in range(4)]
BAD_PATHS = [
    None, "!", "!x", "!/", "!//", "!x/y", "~/", "~/a/", "~//a", "~/a//b", "~/.", "~/..", "~/./a", "~/a/..", "~/a/../b",
    "~/a\0b", "~/a\u0001", "~/\u007f", "~/\ud800", "~/\ue000", "~/\ufff5", "~/\U0001f600", "~/...", "~/.a", "~/a ",
]
READ_ONLY_PATHS = ["!/", "!", "!/zookeeper", "!/zookeeper/quota", "!/zookeeper/x"]
DATA = [None, "", "x", "hello", "h\u00e9", 1000]
CREATE_FLAGS = [0] * 8 + [1] * 4 + [2] * 4 + [3] * 3
ODD_FLAGS = [4, 5, 6, 7, -1, 99]
TTL = 10 ** 8
TTLS = [TTL] * 6 + [0, -1, -TTL, 2 ** 40 - 1, 2 ** 40, 2 ** 40 + 1, 2 ** 62]
ODD_KINDS = [0, 4, 5, 6, -1]
TIMEOUTS = [30000] * 6 + [0, -1, 1, 4000, 10000, 39999, 40000, 40001, 2 ** 31 - 1]
FEATURES = [
    "ttl", "container", "auth", "super", "odd-acls", "bad-paths", "odd-flags", "odd-requests", "watches", "add-watch",
    "remove-watches", "set-watches", "multi", "multi-read", "reconnect", "pipeline", "delete-container", "who-am-i",
    "get-ephemerals", "count", "root", "timeouts", "large", "lone-check", "check-watches",
]
# A check outside of a multiple request is written to ZooKeeper's log, and then it cannot be started again.
USUALLY_LEFT_OUT = "lone-check"


class Generator:
    def __init__(self, seed, without=()):
        self.random = random.Random(seed)
        self.without = set(without)
        self.sessions = self.random.choice([1, 2, 2, 3, 4])
        # Most of a program's paths are few, so that steps meet.
        self.usual = self.random.sample(PATHS[1:], 5) + ["~"]
        self.acls = ["open"] * 6 + self.random.sample(sorted(ACLS), 3) if self.random.random() < 0.5 else ["open"]

    def has(self, feature, chance):
        return feature not in self.without and self.random.random() < chance

    def one_of(self, *choices):
        return self.random.choice(choices)

    def path(self, write=False, change=False):
        if self.has("bad-paths", 0.03):
            path = self.random.choice(BAD_PATHS)
            # The root is not the program's alone: what one writes to it, others see, and the other way round.
            return "~/" if change and path in ("!/", "!") else path
        if not write and self.has("root", 0.03):
            return self.random.choice(READ_ONLY_PATHS)
        draw = self.random.random()
        return self.random.choice(self.usual if draw < 0.7 else NUMBERED if draw < 0.8 else PATHS)

    def paths(self):
        return None if self.random.random() < 0.03 else [self.path() for _ in range(self.random.randrange(4))]

    def acl(self):
        if self.has("odd-acls", 0.05):
            return self.random.choice(sorted(ACLS))
        return self.random.choice(self.acls)

    def version(self):
        return self.one_of(-1, -1, -1, 0, 0, 1, 2, 3, -2, 2 ** 31 - 1)

    def data(self):
        if self.has("large", 0.002):
            # A longer request is no error of that request at ZooKeeper, which hangs up: the keeper differs on purpose.
            return self.one_of(900000, (1 << 20) - 300)
        return self.random.choice(DATA)

    # ---- requests

    def creation(self):
        step = {"op": self.one_of("create", "create", "create", "create2"), "path": self.path(write=True)}
        step.update(data=self.data(), acl=self.acl(), flags=self.random.choice(CREATE_FLAGS))
        if step["flags"] in (2, 3) and self.random.random() < 0.8:
            step["path"] = self.random.choice(SEQUENTIAL)
        if self.has("odd-flags", 0.03):
            step["flags"] = self.random.choice(ODD_FLAGS)
        if step["path"] in ("!/", "~"):
            step["flags"] = 0  # not below the root, where others may be
        elif self.has("container", 0.06):
            step.update(op="createContainer", flags=self.one_of(4, 4, 4, 4, 0, 1, 5))
        elif self.has("ttl", 0.06):
            step.update(op="createTTL", flags=self.one_of(5, 6), ttl=self.random.choice(TTLS))
            if self.has("odd-flags", 0.1):
                # With another TTL, too, this ends a ZooKeeper.
                step.update(flags=self.one_of(0, 1, 4), ttl=TTL)
        return step

    def deletion(self):
        return {"op": "delete", "path": self.path(write=True), "version": self.version()}

    def change(self):
        return {"op": "setData", "path": self.path(write=True, change=True), "data": self.data(), "version": self.version()}

    def acl_change(self):
        return {"op": "setACL", "path": self.path(write=True, change=True), "acl": self.acl(), "version": self.version()}

    def check(self):
        return {"op": "check", "path": self.path(write=True, change=True), "version": self.version()}

    def read(self):
        operation = self.one_of("exists", "exists", "getData", "getData", "getChildren", "getChildren2", "getChildren2")
        return {"op": operation, "path": self.path(), "watch": self.has("watches", 0.5)}

    def other_read(self):
        choices = ["getACL", "getACL", "sync"]
        choices += [op for op, feature in (("getEphemerals", "get-ephemerals"), ("getAllChildrenNumber", "count"))
                    if feature not in self.without]
        return {"op": self.random.choice(choices), "path": self.path()}

    def multi(self):
        kinds = [self.creation, self.creation, self.deletion, self.change, self.check]
        if self.has("odd-requests", 0.03):
            kinds += [self.read, self.acl_change]
        parts = [self.random.choice(kinds)() for _ in range(self.one_of(0, 1, 2, 2, 3, 3, 4, 6))]
        for part in parts:
            if isinstance(part.get("data"), int):
                part["data"] = 150000  # so that all of it is not too long
        return {"op": "multi", "parts": parts}

    def multi_read(self):
        def part():
            operation = "exists" if self.has("odd-requests", 0.02) else self.one_of("getData", "getChildren")
            return {"op": operation, "path": self.path(write=True, change=True), "watch": self.has("watches", 0.1)}
        parts = [part() for _ in range(self.one_of(0, 1, 2, 3))]
        if self.has("odd-requests", 0.05):
            writes = [self.change, self.deletion, self.check]
            parts = parts[:self.one_of(0, 0, 1)] + [self.random.choice(writes)() for _ in range(self.one_of(1, 2))]
            for part in parts:
                if isinstance(part.get("data"), int):
                    part["data"] = 150000
        return {"op": "multiRead", "parts": parts}

    def auth(self):
        users = [user for user in USERS if user != "super" or "super" not in self.without]
        step = {"op": "auth", "scheme": "digest", "data": USERS[self.random.choice(users)]}
        if self.has("odd-requests", 0.1):
            step.update(scheme=self.one_of("bogus", "world", "ip", "", None), data=self.one_of("", "x", None))
        elif self.has("odd-requests", 0.1):
            step.update(data=self.one_of("", "no colon", "super:wrong", "one:2", ":", None))
        return step

    def watching(self):
        return {"op": "addWatch", "path": self.path(), "mode": self.one_of(0, 0, 0, 1, 1, 1, 2, -1)}

    def unwatching(self):
        operation = "checkWatches" if self.has("check-watches", 0.3) else "removeWatches"
        kind = self.random.choice(ODD_KINDS) if self.has("odd-requests", 0.05) else self.one_of(1, 2, 3)
        return {"op": operation, "path": self.path(), "kind": kind}

    def watches_again(self):
        count, operation = self.one_of((3, "setWatches"), (5, "setWatches2"))
        lists = [self.paths() for _ in range(count)]
        return {"op": operation, "since": self.one_of("seen", "seen", 0), "lists": lists}

    def odd_request(self):
        step = self.request()
        kind = self.random.randrange(5)
        if kind == 0:
            return {"op": "raw", "code": self.one_of(10, 23, 99, 108, 999, -1, -2, 0), "body": self.one_of("", "00" * 8)}
        if kind == 1:
            step["cut"] = self.one_of(1, 2, 4, 8, 30)
        elif kind == 2:
            step["more"] = self.one_of("00", "ffffffff", "0000000161")
        elif kind == 3:
            step["xid"] = self.one_of(0, 7, -3, -100, 2 ** 31 - 1, -2 ** 31)
        elif kind == 4:
            return {"op": "raw", "code": self.one_of(1, 2, 3, 4, 5, 8, 14, 15, 104, 106), "body": self.one_of(
                "", "7fffffff", "80000000", "fffffffe", "00000004616263", "ffffffff" * 6, "0000000a2f61")}
        return step

    def request(self):
        """One request of any kind, in about the proportions that make nodes come and go."""
        kinds = [
            (self.creation, 24, None), (self.deletion, 12, None), (self.change, 12, None), (self.read, 24, None),
            (self.other_read, 6, None), (self.acl_change, 4, None), (self.check, 1, "lone-check"),
            (self.multi, 8, "multi"), (self.multi_read, 3, "multi-read"), (self.auth, 2, "auth"),
            (self.watching, 4, "add-watch"), (self.unwatching, 3, "remove-watches"),
            (self.watches_again, 2, "set-watches"), (lambda: {"op": "whoAmI"}, 1, "who-am-i"),
            (lambda: {"op": "ping"}, 0.5, None),
            (lambda: {"op": "deleteContainer", "path": self.path(write=True)}, 0.5, "delete-container"),
        ]
        kinds = [kind for kind in kinds if kind[2] not in self.without]
        return self.random.choices([kind[0] for kind in kinds], [kind[1] for kind in kinds])[0]()

    def pipeline(self):
        """Requests that are sent at once, as far as it is decided what ZooKeeper answers to them.

        It answers a login at once, before requests that it has not come to. It looks at permissions before it has changed
        them in requests just before.
        """
        steps = [self.request() for _ in range(self.random.randrange(2, 9))]
        steps = [step for step in steps if step["op"] != "auth"]
        at = next((index for index, step in enumerate(steps) if step["op"] == "setACL"), len(steps))
        return steps[:at + 1]

    # ---- steps

    def step(self):
        number = self.random.randrange(self.sessions)
        if self.has("odd-requests", 0.015):
            step = self.odd_request()
        elif self.has("pipeline", 0.04):
            step = {"op": "pipeline", "steps": self.pipeline()}
        elif self.has("reconnect", 0.03):
            step = {"op": self.one_of("disconnect", "disconnect", "reconnect")}
            if step["op"] == "reconnect":
                if self.random.random() < 0.15:
                    step["password"] = "wrong"
                elif self.random.random() < 0.1:
                    step["zxid"] = 2 ** 62
        elif self.random.random() < 0.015:
            step = {"op": "close"}
        else:
            step = self.request()
        return {"s": number, **step}

    def reconnection(self, number):
        """A client that comes back says at once what it had watched."""
        return [{"s": number, "op": "reconnect"}] + ([{"s": number, **self.watches_again()}]
                                                     if "set-watches" not in self.without else [])

    def program(self, length):
        steps = []
        for number in range(self.sessions):
            timeout = self.random.choice(TIMEOUTS) if "timeouts" not in self.without else 30000
            steps.append({"s": number, "op": "open", "timeout": timeout})
        for path in ("~/a", "~/b", "~/a/x", "~/c"):
            # Something to begin with: without, most requests would find no node.
            if self.random.random() < 0.6:
                steps.append({"s": 0, "op": "create", "path": path, "data": "", "acl": "open", "flags": 0})
        away = []
        while len(steps) < length:
            step = self.step()
            if step["s"] in away:
                if self.random.random() < 0.3:
                    away.remove(step["s"])
                    steps += self.reconnection(step["s"])
                continue
            if step["op"] == "disconnect":
                if len(away) + 1 == self.sessions:
                    steps += [step] + self.reconnection(step["s"])
                    continue
                away.append(step["s"])
            steps.append(step)
        return steps[:length]


def program(seed, length, without=(), expiry=False):
    generator = Generator(seed, without)
    steps = generator.program(length)
    if expiry and generator.sessions > 1:
        # The first session of a short timeout, left alone near the end.
        steps[0]["timeout"] = 4000
        steps.insert(max(generator.sessions, len(steps) - 10), {"s": 0, "op": "expire"})
    return steps
