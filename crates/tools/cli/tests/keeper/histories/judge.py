"""The verdict over all that several clients of several servers were told: it is one history, or it says why not.

- An answered write has a zxid of its own, behind all that were answered before it was sent. No session goes back.
- What was said of a node is true at the zxid of the answer: versions are given out once and in order, no answered write
  is undone, and what nobody asked for has not happened (nodes.py). A write without an answer happened once or not at all.
- A sync knows every write that was answered before it was sent.
- Who watches hears of a change before an answer shows it.
- A session's nodes are there as long as it lives, gone when its end was told, and no session ends early.
"""

import bisect
import collections
import json
import posixpath

from nodes import Nodes, Stat

# Connection lost, session expired, session moved: they do not say what has become of the request.
OPEN = {-4, -112, -118}
NO_NODE, NODE_EXISTS = -101, -110
# Of a session's end at the latest, behind what its client was told; microseconds.
ENDS_WITHIN = 5_000_000
WRITES = {"create", "delete", "set", "set list"}
EVENTS = {"create": "NodeCreated", "delete": "NodeDeleted", "set": "NodeDataChanged"}


class Session:
    """`alive` is the last zxid at which something was answered to it, `heard` when that was asked for."""

    def __init__(self):
        self.owner = self.timeout = None
        self.alive = self.heard = 0
        self.closing = self.ended_at = self.told_at = None

    def may_be_over(self, fact):
        """Whether its end can be the reason that a node is gone: it is not if the client was answered later, or just before."""
        if fact.zxid <= self.alive:
            return False
        is_closing = self.closing is not None and self.closing <= fact.because["ended"]
        return is_closing or fact.because["ended"] >= self.heard + self.timeout * 1000


class Judge:
    def __init__(self, lines):
        self.lines = lines
        self.complaints = []
        self.sessions = collections.defaultdict(Session)
        self.answers = []
        self.named = {}
        self.placed = {}

    def complain(self, what, line=None):
        self.complaints.append(what if line is None else "%s: %s" % (what, json.dumps(line)[:600]))

    def run(self):
        self.read()
        self.read_sessions()
        self.orders()
        self.never_back()
        self.read_nodes()
        self.nodes.judge()
        self.watches()
        self.hears_all()
        return self.complaints

    def read(self):
        """An answer that says nothing of its request is none. What was made has its own name in the end."""
        for line in self.lines:
            if "event" in line:
                # What was told to a watcher was told at once.
                line["ended"] = line["at"]
            if "do" not in line:
                continue
            line["is_open"] = line["rc"] in OPEN
            if line["do"] == "multi read":
                line["is_open"] = not any("rc" in part for part in line["parts"])
            if not line["is_open"]:
                self.answers.append(line)
            is_done = line["rc"] == 0
            line["writes_at"] = line["zxid"] if is_done and line["do"] in WRITES | {"multi"} else None
        closed = [line for line in self.lines if line.get("state") == "closed" and line["zxid"]]
        ends = [{"do": "close", "session": line["session"], "began": line["began"], "ended": line["at"],
                 "zxid": line["zxid"], "writes_at": line["zxid"], "is_open": False, "rc": 0} for line in closed]
        self.answers += ends
        self.answers.sort(key=lambda line: line["ended"])
        # Several readers share what is in order: when each was answered, and the highest zxid until then.
        self.ended = [line["ended"] for line in self.answers]
        self.highest, self.highest_write = [0], [0]
        for line in self.answers:
            self.highest.append(max(self.highest[-1], line["zxid"]))
            # A multi of checks alone has a zxid, and changes nothing that a sync could miss.
            changes = any(part["do"] in WRITES | {"close"} for part in line.get("parts") or [line])
            self.highest_write.append(max(self.highest_write[-1], line["writes_at"] or 0 if changes else 0))

    def before(self, began, highest):
        return highest[bisect.bisect_left(self.ended, began)]

    def read_sessions(self):
        self.owners = {}
        for line in self.lines:
            session = self.sessions[line["session"]]
            state = line.get("state")
            if state == "connected":
                session.owner, session.timeout = line["owner"], line["timeout"]
                self.owners[session.owner] = session
            elif state == "Expired":
                session.told_at = line["at"]
            elif state == "closed":
                session.closing = line["began"]
                if line["zxid"]:
                    session.ended_at, session.told_at = line["zxid"], line["at"]
        for line in self.answers:
            session = self.sessions[line["session"]]
            if line["do"] != "close":
                session.alive = max(session.alive, line["zxid"])
                session.heard = max(session.heard, line["began"])
        writes = sorted((line["began"], line["writes_at"]) for line in self.answers if line["writes_at"])
        lowest = [zxid for _, zxid in writes]
        for i in range(len(lowest) - 2, -1, -1):
            lowest[i] = min(lowest[i], lowest[i + 1])
        for name, session in self.sessions.items():
            if session.told_at is None:
                continue
            if session.ended_at is None and session.timeout is not None:
                if session.told_at < session.heard + session.timeout * 1000:
                    self.complain("%s has expired %d ms after its client was answered, of %d"
                                  % (name, (session.told_at - session.heard) // 1000, session.timeout))
                # The library says so by itself, too, before a dead gateway's sessions end. What began later lies behind it.
                later = bisect.bisect_right(writes, (session.told_at + ENDS_WITHIN, 1 << 63))
                session.ended_at = lowest[later] if later < len(lowest) else None

    def orders(self):
        zxids = {}
        for line in self.answers:
            if line["writes_at"]:
                if line["zxid"] in zxids:
                    self.complain("two writes have one zxid", line)
                zxids[line["zxid"]] = line
                before = self.before(line["began"], self.highest)
                if line["zxid"] <= before:
                    self.complain("a write is not behind %d, which was answered before it was sent" % before, line)
            elif line["do"] == "sync" and line["rc"] == 0:
                before = self.before(line["began"], self.highest_write)
                if line["zxid"] < before:
                    self.complain("a sync does not know %d, which was answered before it was sent" % before, line)

    def never_back(self):
        last = collections.defaultdict(int)
        for line in self.lines:
            if "do" in line and not line["is_open"]:
                if line["zxid"] < last[line["session"]]:
                    self.complain("a session goes back, from %d" % last[line["session"]], line)
                last[line["session"]] = max(last[line["session"]], line["zxid"])

    def read_nodes(self):
        self.nodes = Nodes(self.owners, self.complain)
        for line in self.lines:
            for part in self.parts(line):
                for kind in ("writes", "list"):
                    if kind in part:
                        self.named[part[kind]] = (line, part)
        for line in self.lines:
            if "event" in line:
                self.fact_of_event(line)
            elif "do" in line and not line["is_open"]:
                for part in self.parts(line):
                    self.facts(line, part)
        for line in self.lines:
            if "do" in line and line["is_open"]:
                for part in self.parts(line):
                    self.unanswered(part)

    @staticmethod
    def parts(line):
        return line.get("parts") or ([line] if "do" in line else [])

    def unanswered(self, part):
        # What was written to an access list may have been seen by its version before its name was read.
        name = None if part["do"] == "set list" else part.get("writes")
        if part["do"] in WRITES and name not in self.placed:
            self.nodes.open[part["do"], part["path"]].append(part)

    def fact_of_event(self, line):
        """Events that a client missed have no zxid."""
        zxid, path, kind = line["zxid"], line["path"], line["event"]
        if zxid <= 0:
            return
        if kind == "NodeCreated":
            self.nodes.add(path, zxid, True, line, life=zxid)
        elif kind == "NodeDeleted":
            self.nodes.add(path, zxid, False, line)
        elif kind == "NodeDataChanged":
            self.nodes.add(path, zxid, True, line)
        elif kind == "NodeChildrenChanged":
            self.nodes.add(path, zxid, True, line, pzxid=zxid)

    def facts(self, line, part):
        rc = part.get("rc", line["rc"])
        kind, path, zxid = part["do"], part["path"], line["zxid"]
        is_multi = line["do"] == "multi"
        if rc != 0 or is_multi and line["rc"] != 0:
            if not is_multi and rc == NO_NODE and kind != "create":
                self.nodes.add(path, zxid, False, line)
            elif not is_multi and rc == NODE_EXISTS and kind == "create":
                self.nodes.add(path, zxid, True, line)
            return
        stat = Stat(*part["stat"]) if "stat" in part else None
        if kind in WRITES or kind == "check":
            self.facts_of_write(line, part, stat, is_multi)
        elif stat is not None:
            self.nodes.add_stat(path, zxid, stat, line, data=part.get("data"), list=part.get("acl"))
        if "data" in part:
            self.place(part["data"], (path, stat.mzxid, stat.version), stat.mzxid, line)
            if part["length"] != stat.length:
                self.complain("the Stat has another length than the data", line)
        if "acl" in part and part["acl"]:
            self.place(part["acl"], (path, stat.czxid, stat.aversion), None, line)
        if "children" in part:
            self.nodes.add_list(path, zxid, part["children"], line)
            if stat is not None and stat.children != len(part["children"]):
                self.complain("the Stat has another number of children than the list", line)

    def place(self, name, place, zxid, line):
        """Data or an access list was seen: it is there once, of a write that has not failed."""
        if name not in self.named:
            return self.complain("somebody has read %s, which nobody wrote" % name, line)
        if self.placed.setdefault(name, place) != place:
            self.complain("%s is at %s, too" % (name, self.placed[name]), line)
        asked, part = self.named[name]
        at = asked["writes_at"]
        is_there = part["path"] == place[0] or part["path"].endswith("n-") and place[0].startswith(part["path"])
        if not is_there or not asked["is_open"] and at is None or zxid and at not in (None, zxid):
            self.complain("%s was written otherwise: %s" % (name, json.dumps(asked)[:400]), line)
        elif at is None and zxid and zxid <= self.before(asked["began"], self.highest):
            self.complain("%s was written before its writer asked for it" % name, line)
        return None

    def owner(self, line, mode):
        """Of a container, and of a node that lives for a time, the Stat tells it."""
        if mode.startswith("EPHEMERAL"):
            return self.sessions[line["session"]].owner
        return 0 if mode in ("PERSISTENT", "PERSISTENT_SEQUENTIAL") else None

    def facts_of_write(self, line, part, stat, is_multi):
        add, zxid, path = self.nodes.add, line["zxid"], part["path"]
        version = part.get("version", -1)
        version = version if version >= 0 else None
        kind = part["do"]
        if kind == "create":
            path = part["made"]
            owner = self.owner(line, part["mode"])
            add(path, zxid - 1, False, line)
            add(path, zxid, True, line, life=zxid, version=0, aversion=0, mzxid=zxid, data=part["writes"], owner=owner,
                list=part.get("list"))
            if "ttl" in part:
                self.nodes.made[path, zxid] = line["began"]
            if stat is not None and stat[:6] != (zxid, zxid, zxid, 0, 0, 0):
                self.complain("a node that is new has another Stat", line)
            self.place(part["writes"], (path, zxid, 0), zxid, line)
        elif kind == "delete":
            add(path, zxid - 1, True, line, version=version)
            self.nodes.deleted(path, zxid, line)
        elif kind == "check":
            add(path, zxid, True, line, version=version)
        elif kind == "set":
            add(path, zxid - 1, True, line, version=version)
            if stat.mzxid != zxid or version is not None and stat.version != version + 1:
                self.complain("a write has another version than it must have", line)
            self.nodes.add_stat(path, zxid, stat, line, is_multi, data=part["writes"])
            self.place(part["writes"], (path, zxid, stat.version), zxid, line)
        else:
            add(path, zxid - 1, True, line, aversion=version)
            if version is not None and stat.aversion != version + 1:
                self.complain("an access list has another version than it must have", line)
            self.nodes.add_stat(path, zxid, stat, line, list=part["list"])
            self.place(part["list"], (path, stat.czxid, stat.aversion), None, line)
        if kind in ("create", "delete"):
            gone = [other["path"] for other in self.parts(line) if other["do"] == "delete"]
            if posixpath.dirname(path) not in gone:
                self.nodes.touch_parent(path, zxid, line)

    @staticmethod
    def seen(line, part):
        """What an answer shows of a node: False for none, None if it shows nothing, otherwise life, mzxid and pzxid."""
        rc = part.get("rc", line["rc"])
        is_multi = line["do"] == "multi"
        if rc == NO_NODE and not is_multi and part["do"] != "create":
            return False
        if rc != 0 or is_multi and line["rc"] != 0:
            return None
        if part["do"] == "delete":
            return False
        if "stat" in part:
            stat = Stat(*part["stat"])
            return stat.czxid, stat.mzxid, None if is_multi else stat.pzxid
        return (line["zxid"], line["zxid"], None) if part["do"] == "create" else None

    def watches(self):
        """Of each session and node, the watches that were not fired yet, with what their clients knew."""
        waiting = collections.defaultdict(lambda: collections.defaultdict(dict))
        for line in self.lines:
            mine = waiting[line["session"]]
            if "event" in line:
                mine[line["path"]].pop(line["watch"], None)
            elif line.get("state") in ("Expired", "closed", "left"):
                waiting.pop(line["session"])
            elif "do" in line and not line["is_open"]:
                for part in self.parts(line):
                    seen = self.seen(line, part)
                    path = part["made"] if part["do"] == "create" and seen else part["path"]
                    for number, (of_children, known) in list(mine[path].items() if seen is not None else ()):
                        if self.differs(of_children, known, seen):
                            self.complain("watch %d has not fired, and its client sees that %s has changed since %s"
                                          % (number, path, known), line)
                            del mine[path][number]
                is_set = line["rc"] == 0 or line["rc"] == NO_NODE and line["do"] == "exists"
                if "watch" in line and is_set and line["do"] != "watch all":
                    mine[line["path"]][line["watch"]] = (line["do"] == "list", self.seen(line, line))

    @staticmethod
    def differs(of_children, known, seen):
        if not known or not seen:
            return known != seen
        if not of_children:
            return known[:2] != seen[:2]
        return known[0] != seen[0] or None not in (known[2], seen[2]) and known[2] < seen[2]

    def hears_all(self):
        """Who watches everything has heard of every write up to the zxid of an answer, as long as the connection lasts."""
        changes = sorted((line["zxid"], part["made"] if part["do"] == "create" else part["path"], EVENTS[part["do"]])
                         for line in self.answers if line["writes_at"] and line["do"] != "close"
                         for part in self.parts(line) if part["do"] in EVENTS)
        observers = {line["session"]: line["watch"] for line in self.lines if line.get("do") == "watch all"}
        heard = collections.defaultdict(set)
        since = {}
        for line in self.lines:
            session = line["session"]
            if session not in observers:
                continue
            if line.get("watch") == observers[session] and "event" in line:
                heard[session].add((line["zxid"], line["path"], line["event"]))
            elif "state" in line:
                since.pop(session, None)
            elif "do" in line and not line["is_open"]:
                first = bisect.bisect_right(changes, (since.get(session, line["zxid"]), "\xff"))
                for change in changes[first:bisect.bisect_right(changes, (line["zxid"], "\xff"))]:
                    if change not in heard[session]:
                        self.complain("who watches everything has not heard of %s of %s at %d"
                                      % (change[2], change[1], change[0]), line)
                since[session] = line["zxid"]


def judge(lines):
    return Judge(lines).run()


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file]
