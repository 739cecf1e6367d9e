"""One server as the oracle sees it: it takes the steps of a program, one after the other, and notes all that comes back."""

import time

import wire
from wire import Closed, Owner, Reader, Silent, Time, Wire, Zxid

# Passwords of the users that programs log in as. The digest of super's is a setting of the server.
USERS = {"one": "one:1", "two": "two:2", "super": "super:test"}
ACLS = {
    "open": [(31, "world", "anyone")],
    "read": [(1, "world", "anyone")],
    "no-delete": [(31 - 8, "world", "anyone")],
    "no-admin": [(31 - 16, "world", "anyone")],
    "creator": [(31, "auth", "")],
    "creator-read": [(31, "auth", ""), (1, "world", "anyone")],
    "one": [(31, "digest", "one:lj6jV0CklO+B740yxtWS4XOn7ag=")],
    "two-read": [(31, "digest", "two:KDB/2qrXaPm2X1rbcKyH8E/poXE="), (1, "world", "anyone")],
    "here": [(31, "ip", "127.0.0.1")],
    "elsewhere": [(31, "ip", "10.0.0.0/8")],
    "net": [(5, "ip", "127.0.0.0/8")],
    "twice": [(1, "world", "anyone"), (1, "world", "anyone"), (31, "world", "anyone")],
    "nothing": [(0, "world", "anyone")],
    "beyond": [(255, "world", "anyone")],
    "empty": [],
    "null": None,
    "stranger": [(31, "bogus", "x")],
    "somebody": [(31, "world", "somebody")],
    "no-colon": [(31, "digest", "one")],
    "no-address": [(31, "ip", "127.0.0.1/33")],
    "null-names": [(31, None, None)],
}
WRITES = {"create", "create2", "createContainer", "createTTL", "delete", "deleteContainer", "setData", "setACL", "multi"}
# Steps after which another session may have something to hear.
STIRRING = WRITES | {"close", "expire", "pipeline", "raw", "check", "disconnect", "reconnect", "auth"}
# A login that failed, a request that is not known: the server hangs up after it said so.
CLOSING = (-115, -6)
BARRIER_XID = 1 << 30
GRACE_MS = 5000
# Below half of the shortest time-out that servers grant.
SILENCE_SECONDS = 1


class Gone(Exception):
    """A server accepts no connection."""


class Session:
    def __init__(self, number, generation, timeout):
        self.name = "session %d.%d" % (number, generation)
        self.timeout = timeout
        self.wire = None
        self.id = 0
        self.password = b"\0" * 16
        self.zxid = 0
        self.xid = 0
        self.spoke = time.monotonic()
        self.early = []


class Side:
    def __init__(self, address, base, patience):
        self.address = address
        self.base = base
        self.patience = patience
        self.meanwhile = lambda: None
        self.sessions = {}
        self.generations = {}
        self.owners = {}
        self.began = time.time() * 1000
        self.time_of = {}

    # ---- requests

    def path(self, path):
        if path is None or path.startswith("!"):
            return path and path[1:]
        return self.base + path[1:]

    def data(self, data):
        if isinstance(data, int):
            return b"x" * data
        return None if data is None else data.encode()

    def acl(self, step):
        return wire.vector(ACLS[step["acl"]], wire.acl)

    def created(self, step):
        return wire.string(self.path(step["path"])) + wire.buffer(self.data(step["data"])) + self.acl(step)

    def paths(self, paths):
        return wire.vector(paths, lambda path: wire.string(self.path(path)))

    def body(self, step, session):
        operation = step["op"]
        if operation in ("create", "create2", "createContainer"):
            return self.created(step) + wire.integer(step["flags"])
        if operation == "createTTL":
            return self.created(step) + wire.integer(step["flags"]) + wire.long(step["ttl"])
        if operation in ("multi", "multiRead"):
            parts = [
                wire.integer(wire.OPERATIONS[part["op"]]) + b"\0" + wire.integer(-1) + self.body(part, session)
                for part in step["parts"]
            ]
            return b"".join(parts) + wire.integer(-1) + b"\1" + wire.integer(-1)
        if operation in ("setWatches", "setWatches2"):
            lists = b"".join(map(self.paths, step["lists"]))
            return wire.long(session.zxid if step["since"] == "seen" else step["since"]) + lists
        if operation == "auth":
            return wire.integer(0) + wire.string(step["scheme"]) + wire.buffer(self.data(step["data"]))
        if operation in ("whoAmI", "ping", "close"):
            return b""
        path = wire.string(self.path(step["path"]))
        if operation in ("exists", "getData", "getChildren", "getChildren2"):
            # Without the watch flag, which only a part of a multiple read lacks: it has it, too.
            return path + wire.boolean(step.get("watch"))
        if operation in ("delete", "check"):
            return path + wire.integer(step["version"])
        if operation == "setData":
            return path + wire.buffer(self.data(step["data"])) + wire.integer(step["version"])
        if operation == "setACL":
            return path + self.acl(step) + wire.integer(step["version"])
        if operation in ("removeWatches", "checkWatches"):
            return path + wire.integer(step["kind"])
        if operation == "addWatch":
            return path + wire.integer(step["mode"])
        return path  # getACL, sync, getEphemerals, getAllChildrenNumber, deleteContainer

    def send(self, step, session):
        """Sends a request and returns its xid."""
        operation = step["op"]
        # How many pings there are while a session expires is a matter of time.
        session.xid += operation != "ping"
        xid = step.get("xid", wire.XIDS.get(operation, session.xid))
        if operation == "raw":
            code, body = step["code"], bytes.fromhex(step["body"])
        else:
            code, body = wire.OPERATIONS[operation], self.body(step, session)
        body = body[:len(body) - step.get("cut", 0)] + bytes.fromhex(step.get("more", ""))
        session.wire.send(wire.integer(xid) + wire.integer(code) + body)
        session.spoke = time.monotonic()
        # A ping is answered with the number of pings, whatever it had.
        return wire.XIDS["ping"] if operation == "ping" else xid

    # ---- what comes back

    def event(self, frame):
        reader = Reader(frame[16:])
        values = [reader.integer(), reader.integer(), reader.string()]
        zxid, error = int.from_bytes(frame[4:12], "big", signed=True), int.from_bytes(frame[12:16], "big", signed=True)
        # Before 3.9 an event does not say which transaction it tells of.
        broken = [] if zxid >= -1 and error == 0 else [["header of an event", zxid, error]]
        return ["event"] + values + broken

    def reply(self, frame, step, session):
        reader = Reader(frame)
        xid, zxid, error = reader.integer(), reader.long(), reader.integer()
        broken = []
        if step["op"] != "auth" and error != -6:
            if zxid < session.zxid:
                broken.append("its zxid goes back")
            session.zxid = max(zxid, session.zxid)
        # A multiple read that fails in the middle tells what it has read before.
        is_told = error == 0 or step["op"] == "multiRead" and len(frame) > 16
        values = wire.answer(step["op"], frame[16:]) if is_told else [frame[16:].hex()]
        broken += self.check(values, zxid)
        self.mask(values, step)
        wrote = error == 0 and step["op"] in WRITES and not self.failed(values, step)
        header = {"xid": xid, "error": error, "wrote" if wrote else "zxid": Zxid(zxid)}
        return ["reply", header, values] + broken

    def failed(self, values, step):
        return step["op"] == "multi" and (not values[:-1] or values[0][0] == -1)

    def check(self, values, zxid):
        """What one server's answers must fulfil by themselves."""
        broken = []
        for value in values:
            if isinstance(value, list):
                broken += self.check(value, zxid)
            if not isinstance(value, dict):
                continue
            if max(value["czxid"], value["mzxid"], value["pzxid"]) > zxid:
                broken.append("it tells of a transaction after its own zxid")
            for zxid_of, when in ((value["czxid"], value["ctime"]), (value["mzxid"], value["mtime"])):
                # Whatever a transaction changes has one time.
                if zxid_of and self.time_of.setdefault(zxid_of, when) != when:
                    broken.append("one transaction has two times")
        return broken

    def mask(self, values, step):
        """The root is not ours alone: others may have changed it on one of the two servers."""
        if "path" not in step or self.path(step["path"]) not in ("/", ""):
            return
        ours = {self.base[1:], "zookeeper"}
        for index, value in enumerate(values):
            listed = isinstance(value, list) and step["op"] in ("getChildren", "getChildren2")
            values[index] = [name for name in value if name in ours] if listed else "the root's"

    def receive(self, session, step, xid, patience=None):
        """Everything up to the answer to `step`."""
        found = []
        while True:
            try:
                frame = session.wire.receive(patience)
            except Closed:
                session.wire.close()
                session.wire = None
                return found + [["closed"]]
            except Silent:
                return found + [["silent"]]
            if len(frame) < 16:
                found.append(["short", frame.hex()])
                continue
            got = int.from_bytes(frame[:4], "big", signed=True)
            if got == wire.XIDS["ping"] and step["op"] != "ping":
                continue  # the answer to one of `beat`
            if got == wire.EVENT_XID and xid != wire.EVENT_XID:
                found.append(self.event(frame))
                continue
            found.append(self.reply(frame, step, session))
            if got == xid:
                return found

    # ---- steps

    def do(self, step):
        """Takes a step. A generator that stops in the middle, after it sent the request."""
        number = step["s"]
        operation = step["op"]
        session = self.sessions.get(number)
        found = self.heard_early(session) if session else []
        if operation == "disconnect":
            yield
            if session and session.wire:
                session.wire.close()
                session.wire = None
            return found
        if session is None or session.wire is None and operation != "reconnect":
            found += self.connect(number, {"op": "reconnect"} if session else {"op": "open", "timeout": 30000})
            session = self.sessions.get(number)
        if operation in ("open", "reconnect"):
            yield
            return found + (self.connect(number, step) if session else [])
        if operation == "expire":
            return found + (yield from self.expire(number))
        if session is None or session.wire is None:
            yield
            return found + [["no session"]]
        steps = step["steps"] if operation == "pipeline" else [step]
        sent = [self.send(part, session) for part in steps]
        yield
        for part, xid in zip(steps, sent):
            if session.wire is None:
                found.append(["closed before", part["op"]])
            else:
                found += self.receive(session, part, xid)
        if operation == "close" or found and found[-1][0] == "reply" and found[-1][1]["error"] in CLOSING:
            if session.wire:
                found += self.receive(session, step, None)
        if operation == "close":
            self.sessions.pop(number, None)
        return found

    def connect(self, number, step):
        """Opens a session, or goes on with it over a new connection. What the old connection still says is noted."""
        old = self.sessions.get(number) if step["op"] == "reconnect" else None
        if old is None:
            generation = self.generations[number] = self.generations.get(number, -1) + 1
            session = Session(number, generation, step.get("timeout", 30000))
        else:
            session = old
        honest = "password" not in step and "zxid" not in step
        before = session.wire
        if before is not None and not honest:
            before.close()
            before = None
        try:
            session.wire = Wire(self.address, self.patience, self.meanwhile)
        except OSError as trouble:
            raise Gone(self.address) from trouble
        password = session.password
        if step.get("password") == "wrong":
            password = bytes([password[0] ^ 1]) + password[1:]
        zxid = step.get("zxid", session.zxid)
        session.wire.send(wire.connect_request(zxid, session.timeout, session.id, password))
        found = self.connected(session, number, honest)
        if before is not None:
            after, session.wire = session.wire, before
            found += [["the old connection", self.receive(session, {"op": "close"}, None)]]
            before.close()
            session.wire = after
        return found

    def connected(self, session, number, honest):
        """The answer to a request for a session. One that was refused though it gave its own password is over."""
        try:
            frame = session.wire.receive()
        except (Closed, Silent) as trouble:
            session.wire.close()
            session.wire = None
            if honest:
                self.sessions.pop(number, None)
            return [["no connection", type(trouble).__name__]]
        reader = Reader(frame)
        protocol, timeout, identity, password = reader.integer(), reader.integer(), reader.long(), reader.buffer()
        rest = frame[reader.at:].hex()
        found = [["connected", protocol, timeout, len(password or b""), rest]]
        if identity == 0:
            found[0].append("refused")
            found[0].append(set(password or b"") <= {0})
            found += self.receive(session, {"op": "close"}, None)
            if honest:
                self.sessions.pop(number, None)
        else:
            found[0].append("the same" if identity == session.id else "another")
            session.id, session.password = identity, password
            session.negotiated = timeout
            self.owners[identity] = session.name
            self.sessions[number] = session
        return found

    def expire(self, number):
        """Leaves a session alone until it is over, while the others go on. It stops often, for the other server's sake."""
        session = self.sessions[number]
        session.wire.close()
        session.wire = None
        until = time.monotonic() + (session.negotiated + GRACE_MS) / 1000
        found = []
        while time.monotonic() < until:
            for other, living in sorted(self.sessions.items()):
                if living.wire:
                    xid = self.send({"op": "ping"}, living)
                    said = self.receive(living, {"op": "ping"}, xid)
                    found += [[other, what] for what in said if what[0] != "reply"]
            yield
            time.sleep(0.2)
        return sorted(found) + self.connect(number, {"op": "reconnect"})

    def hear(self, but):
        """What the other sessions have heard: a generator like `do`. An answer to a read comes after every event before."""
        asked = []
        for number, session in sorted(self.sessions.items()):
            if number not in (but, -1) and session.wire:
                session.spoke = time.monotonic()
                session.wire.send(wire.integer(BARRIER_XID) + wire.integer(9) + wire.string("/"))
                session.wire.send(wire.integer(BARRIER_XID + 1) + wire.integer(3) + wire.string(self.base) + b"\0")
                asked.append((number, session))
        yield
        heard = {}
        for number, session in asked:
            found = self.receive(session, {"op": "sync"}, BARRIER_XID)
            if session.wire:
                found += self.receive(session, {"op": "sync"}, BARRIER_XID + 1)
            heard[number] = self.heard_early(session) + [what for what in found if what[0] != "reply"]
        return heard

    def keep_alive(self):
        """No session ends of a machine that takes seconds for a few steps: those that were silent say that they live."""
        for _, session in sorted(self.sessions.items()):
            if session.wire and time.monotonic() - session.spoke > SILENCE_SECONDS:
                # The other server's session may not need a ping, and has not seen so much then.
                seen = session.zxid
                xid = self.send({"op": "ping"}, session)
                said = self.receive(session, {"op": "ping"}, xid)
                session.zxid = seen
                session.early += [what for what in said if what[0] != "reply"]

    def beat(self):
        """As `keep_alive`, while one of the servers lets somebody wait, and nothing else may be received."""
        for _, session in sorted(self.sessions.items()):
            if session.wire and time.monotonic() - session.spoke > SILENCE_SECONDS:
                self.send({"op": "ping"}, session)

    def heard_early(self, session):
        early, session.early = session.early, []
        return early

    def hear_late(self, number, patience):
        """Events that come later than they should."""
        session = self.sessions.get(number)
        found = []
        while session and session.wire:
            try:
                frame = session.wire.receive(patience)
            except Silent:
                break
            except Closed:
                session.wire = None
                return found + [["closed"]]
            if int.from_bytes(frame[:4], "big", signed=True) != wire.XIDS["ping"]:
                found.append(self.event(frame))
        return found

    # ---- before and after a program

    def begin(self):
        """Makes the node below which the program works."""
        self.step({"s": -1, "op": "open", "timeout": 30000})
        made = self.step({"s": -1, "op": "create", "path": "~", "data": "", "acl": "open", "flags": 0})
        return made[-1][0] == "reply" and made[-1][1]["error"] == 0

    def end(self):
        """Ends all sessions and deletes what is left, as far as it may be deleted."""
        for number in sorted(self.sessions, reverse=True):
            if number != -1:
                # One that is away comes back for it, so that no session ends while a later program runs.
                self.step({"s": number, "op": "close"})
        if -1 in self.sessions:
            for user in USERS.values():
                self.step({"s": -1, "op": "auth", "scheme": "digest", "data": user})
            self.clear("~")
            self.step({"s": -1, "op": "close"})
        for session in self.sessions.values():
            if session.wire:
                session.wire.close()

    def clear(self, path):
        listed = self.step({"s": -1, "op": "getChildren", "path": path})[-1]
        if listed[0] == "reply" and listed[1]["error"] == 0:
            for name in listed[2][0]:
                self.clear(path + "/" + name)
            self.step({"s": -1, "op": "delete", "path": path, "version": -1})

    def step(self, step):
        taking = self.do(step)
        while True:
            try:
                next(taking)
            except StopIteration as done:
                return done.value
