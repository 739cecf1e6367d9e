"""A small history that is right, and what is wrong when something of it is changed: the judge has to say so."""

import copy

from judge import judge

A, B, ALL = "s1", "s2", "s3"
LOST = -4
NO_NODE, BAD_VERSION = -101, -103


def stat(czxid, mzxid, pzxid, version, cversion, aversion, owner=0, length=6, children=0):
    return [czxid, mzxid, pzxid, version, cversion, aversion, owner, length, children]


class Story:
    """Lines as the clients write them, a millisecond for each; some have names."""

    def __init__(self):
        self.lines = []
        self.named = {}

    def add(self, name=None, **line):
        at = 1000 * (len(self.lines) + 1)
        times = {"began": at, "ended": at + 500} if "do" in line else {"at": at}
        line = {**line, **times}
        self.lines.append(line)
        self.named[name] = line

    def ask(self, session, do, path, zxid, name=None, rc=0, **more):
        self.add(name, session=session, do=do, path=path, zxid=zxid, rc=rc, **more)

    def event(self, session, watch, kind, path, zxid, name=None):
        self.add(name, session=session, watch=watch, event=kind, path=path, zxid=zxid)

    def all_hear(self, kind, path, zxid, name=None):
        self.event(ALL, 9, kind, path, zxid, name)

    def remove(self, name):
        self.lines.remove(self.named[name])

    def move_behind(self, name, other):
        self.remove(name)
        self.lines.insert(self.lines.index(self.named[other]) + 1, self.named[name])


def right():
    story = Story()
    for number, session in enumerate((A, B, ALL)):
        story.add(session=session, state="connected", owner=101 + number, timeout=4000)
    story.ask(ALL, "watch all", "/h", 9, watch=9)
    story.ask(ALL, "exists", "/h", 9, stat=stat(5, 5, 5, 0, 0, 0))
    story.ask(A, "create", "/h/a", 10, "create", mode="PERSISTENT", made="/h/a", writes="w1", list="l1")
    story.ask(B, "set", "/h/a", 11, "first", version=0, writes="w2", stat=stat(10, 11, 10, 1, 0, 0))
    story.ask(A, "get", "/h/a", 11, watch=1, data="w2", length=6, stat=stat(10, 11, 10, 1, 0, 0))
    story.ask(B, "set", "/h/a", 12, "second", version=1, writes="w3", stat=stat(10, 12, 10, 2, 0, 0))
    story.event(A, 1, "NodeDataChanged", "/h/a", 12, "heard")
    story.ask(A, "get", "/h/a", 12, "read", data="w3", length=6, stat=stat(10, 12, 10, 2, 0, 0))
    story.ask(B, "create", "/h/e", 13, mode="EPHEMERAL", made="/h/e", writes="w4", list="l2")
    story.ask(A, "set list", "/h/a", 14, "list", version=0, list="l3", stat=stat(10, 12, 10, 2, 0, 1))
    story.ask(A, "exists", "/h/e", 14, "alive", stat=stat(13, 13, 13, 0, 0, 0, 102))
    story.ask(A, "multi", "", 15, "multi", parts=[
        {"do": "set", "path": "/h/a", "rc": 0, "version": 2, "writes": "w5", "stat": stat(10, 15, 10, 3, 0, 1)},
        {"do": "create", "path": "/h/a/x", "rc": 0, "mode": "PERSISTENT", "made": "/h/a/x", "writes": "w6", "list": "l4"}])
    story.ask(B, "sync", "/h", 15, "sync")
    story.ask(B, "multi read", "", 15, "together", parts=[
        {"do": "get", "path": "/h/a", "rc": 0, "data": "w5", "length": 6, "stat": stat(10, 15, 15, 3, 1, 1, 0, 6, 1)},
        {"do": "get", "path": "/h/a/x", "rc": 0, "data": "w6", "length": 6, "stat": stat(15, 15, 15, 0, 0, 0)}])
    story.ask(A, "set", "/h/a", 0, "unanswered", rc=LOST, version=-1, writes="w7")
    for kind, path, zxid in [("Created", "/h/a", 10), ("DataChanged", "/h/a", 11), ("DataChanged", "/h/a", 12),
                             ("Created", "/h/e", 13), ("DataChanged", "/h/a", 15), ("Created", "/h/a/x", 15)]:
        story.all_hear("Node" + kind, path, zxid, "all %d" % zxid)
    story.ask(ALL, "exists", "/h", 15, stat=stat(5, 5, 13, 0, 2, 0, 0, 0, 2))
    story.add("closed", session=B, state="closed", zxid=16)
    story.named["closed"]["began"] = story.named["closed"]["at"] - 10
    story.ask(A, "exists", "/h/e", 16, "gone", rc=NO_NODE)
    story.ask(A, "delete", "/h/a/x", 17, "delete", version=0)
    story.ask(A, "get list", "/h/a", 17, "last list", acl="l3", stat=stat(10, 15, 17, 3, 2, 1))
    story.ask(A, "get", "/h/a", 17, "last", data="w5", length=6, stat=stat(10, 15, 17, 3, 2, 1))
    story.ask(A, "list", "/h", 17, "last children", children=["a"], stat=stat(5, 5, 16, 0, 3, 0, 0, 0, 1))
    return story


def swapped(story):
    first, second = story.named["first"], story.named["second"]
    for line in (first, second):
        line["version"] = -1
    for key in ("zxid", "stat"):
        first[key], second[key] = second[key], first[key]


def lost(story):
    """The read in between has not seen it either."""
    story.remove("together")
    story.named["last"].update(data="w3", stat=stat(10, 12, 17, 2, 2, 1))
    story.named["last list"].update(stat=stat(10, 12, 17, 2, 2, 1))


def doubled(story):
    story.named["second"].update(version=-1, stat=stat(10, 12, 10, 1, 0, 0))


def stale(story):
    story.named["read"].update(data="w2", stat=stat(10, 11, 10, 1, 0, 0))


def created_for_nothing(story):
    for name in ("last", "last list"):
        story.remove(name)
    story.named["last children"].update(children=[], stat=stat(5, 5, 16, 0, 3, 0, 0, 0, 0))


def list_undone(story):
    story.named["last list"].update(acl="l1", stat=stat(10, 15, 17, 3, 2, 0))


def torn(story):
    part = story.named["together"]["parts"][1]
    part["rc"] = NO_NODE
    for key in ("data", "length", "stat"):
        del part[key]


def torn_children(story):
    story.named["together"]["parts"][0]["stat"] = stat(10, 15, 10, 3, 0, 1)


def gone_early(story):
    """Its session was answered at 15, later than that."""
    story.named["alive"].update(rc=NO_NODE)
    del story.named["alive"]["stat"]


def stays(story):
    story.named["gone"].update(rc=0, stat=stat(13, 13, 13, 0, 0, 0, 102))


def expired(story):
    story.named["closed"].update(state="Expired")
    for key in ("zxid", "began"):
        del story.named["closed"][key]


def twice(story):
    """A write without an answer has happened, and once more."""
    story.named["last"].update(data="w7", stat=stat(10, 17, 17, 5, 2, 1))
    story.ask(A, "get", "/h/a", 18, data="w7", length=6, stat=stat(10, 18, 17, 6, 2, 1))


def nobodys(story):
    """One write without an answer cannot have made two versions."""
    story.remove("last list")
    last = story.named["last"]
    last.update(do="exists", stat=stat(10, 16, 17, 5, 2, 1))
    del last["data"], last["length"]


# What is done to the history, and a word of the complaint that it has to give.
DOCTORED = {
    "two writes have changed places": (swapped, "not behind"),
    "a write is lost": (lost, "was undone"),
    "a version is given out twice": (doubled, "twice"),
    "a conditional write succeeds at another version": (
        lambda story: story.named["second"].update(version=0), "another version than"),
    "a read shows an older state than that of its zxid": (stale, "was undone"),
    "a node that was made is not there": (created_for_nothing, "was undone"),
    "a set access list is not there": (list_undone, "aversion"),
    "a transaction is seen in part": (torn, "was undone"),
    "a transaction is seen in part by the parent's Stat": (torn_children, "another time|was undone|two cversions"),
    "a write has a zxid before one that was answered": (
        lambda story: story.named["delete"].update(zxid=12), "one zxid|not behind"),
    "a session goes back": (lambda story: story.named["last"].update(zxid=16), "goes back"),
    "a sync does not know a write": (lambda story: story.named["sync"].update(zxid=14), "a sync does not know"),
    "a watch does not fire": (lambda story: story.remove("heard"), "has not fired"),
    "a watch fires late": (lambda story: story.move_behind("heard", "read"), "has not fired"),
    "who watches everything misses a change": (lambda story: story.remove("all 11"), "has not heard"),
    "a session's node goes early": (gone_early, "went early"),
    "a session's node stays": (stays, "behind the end of its session"),
    "a session expires early": (expired, "has expired"),
    "a refused write has happened": (
        lambda story: story.named["multi"].update(rc=BAD_VERSION), "written otherwise"),
    "a write without an answer happens twice": (twice, "w7 is at"),
    "a version is nobody's": (nobodys, "nobody has written"),
    "data is damaged": (lambda story: story.named["last"].update(data="damaged"), "which nobody wrote"),
}


def are_found():
    complaints = judge(right().lines)
    assert not complaints, "complaints of a right history: %s" % complaints
    for name, (doctor, words) in DOCTORED.items():
        story = copy.deepcopy(right())
        # A copy of the lines and of their names has the same lines.
        doctor(story)
        complaints = judge(story.lines)
        found = any(word in complaint for complaint in complaints for word in words.split("|"))
        assert found, "not found: %s; %s" % (name, complaints)
