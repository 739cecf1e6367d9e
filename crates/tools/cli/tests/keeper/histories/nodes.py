"""What was said of each node, in the order of zxids, and what must have happened between.

A fact says what a node was at a zxid: behind a write that was answered, at a read, just before a conditional write that
succeeded. A `Stat` gives more facts: the node was made at its czxid, and last written at its mzxid. So a lost write is a fact
that contradicts its neighbours, wherever it was seen.
"""

import bisect
import collections
import posixpath

# Whose nodes containers are, and nodes that live for a time: the owners that Stats have.
CONTAINER = -(1 << 63)
TTL_BITS = (1 << 40) - 1

Stat = collections.namedtuple("Stat", "czxid mzxid pzxid version cversion aversion owner length children")


class Fact:
    """What is not known is None. `life` is the czxid of the node, `because` the line that says it."""

    __slots__ = ("zxid", "present", "life", "version", "aversion", "mzxid", "pzxid", "cversion", "owner", "data", "list",
                 "because")

    def __init__(self, zxid, present, because, **known):
        self.zxid, self.present, self.because = zxid, present, because
        for name in self.__slots__[2:-1]:
            setattr(self, name, known.get(name))

    def place(self):
        """What begins a life comes first, then what only tells of children, and what is known best before what is known
        in part."""
        is_of_children = self.pzxid is not None and self.version is None
        return self.zxid, self.life != self.zxid, not is_of_children, self.data is None, self.version is None

    def key(self):
        return tuple(getattr(self, name) for name in self.__slots__[:-1])

    def __str__(self):
        known = ["%s %s" % (name, getattr(self, name)) for name in self.__slots__[2:-1] if getattr(self, name) is not None]
        return "%s at %d" % (", ".join(known) or "there" if self.present else "absent", self.zxid)


class Nodes:
    """The facts of all nodes, and what may have happened without an answer."""

    def __init__(self, sessions, complain):
        self.sessions = sessions
        self.complain = complain
        self.facts = collections.defaultdict(dict)
        self.deletes = collections.defaultdict(dict)
        self.lists = collections.defaultdict(list)
        # Requests without an answer, by what they do and to which path; those to which something is ascribed go.
        self.open = collections.defaultdict(list)
        # When a node that lives for a time was made, at the earliest.
        self.made = {}

    def add(self, path, zxid, present, because, **known):
        fact = Fact(zxid, present, because, **known)
        self.facts[path].setdefault(fact.key(), fact)

    def add_stat(self, path, zxid, stat, because, is_part=False, **known):
        """Of a multi, a part's Stat does not tell what later parts do to the node's children."""
        if not stat.czxid <= stat.mzxid <= zxid or not is_part and not stat.czxid <= stat.pzxid <= zxid:
            self.complain("%s has a Stat from another time than that of its answer" % path, because)
        whose = {"life": stat.czxid, "owner": stat.owner}
        written = {"version": stat.version, "mzxid": stat.mzxid, "data": known.get("data")}
        self.add(path, stat.czxid, True, because, version=0, **whose)
        self.add(path, stat.mzxid, True, because, **whose, **written)
        children = {} if is_part else {"pzxid": stat.pzxid, "cversion": stat.cversion}
        if children:
            self.add(path, stat.pzxid, True, because, **whose, **children)
        self.add(path, zxid, True, because, aversion=stat.aversion, list=known.get("list"), **whose, **written, **children)

    def add_list(self, path, zxid, names, because):
        self.lists[path].append((zxid, frozenset(names), because))

    def touch_parent(self, path, zxid, because):
        if posixpath.dirname(path) != "/":
            self.add(posixpath.dirname(path), zxid, True, because, pzxid=zxid)

    def deleted(self, path, zxid, because):
        self.deletes[path][zxid] = because
        self.add(path, zxid, False, because)

    def judge(self):
        self.spread_lists()
        self.spread_deletes()
        for path, facts in sorted(self.facts.items()):
            Walk(self, path).all(sorted(facts.values(), key=Fact.place))

    def spread_lists(self):
        """Each list says of each child whether it was there. Far from what else is known of the child, one is enough."""
        children = collections.defaultdict(set)
        for path in self.facts:
            children[posixpath.dirname(path)].add(path)
        for parent, lists in self.lists.items():
            lists.sort(key=lambda one: one[0])
            zxids = [zxid for zxid, _, _ in lists]
            for zxid, names, because in lists:
                for name in names:
                    self.add(posixpath.join(parent, name), zxid, True, because)
                    children[parent].add(posixpath.join(parent, name))
            for path in children[parent]:
                known = [fact.zxid for fact in self.facts[path].values()]
                last = bisect.bisect_right(zxids, max(known)) + 1
                for zxid, names, because in lists[bisect.bisect_left(zxids, min(known)):last]:
                    if posixpath.basename(path) not in names:
                        self.add(path, zxid, False, because)

    def spread_deletes(self):
        """A node that was deleted had no children then."""
        for path in list(self.facts):
            for zxid, because in self.deletes.get(posixpath.dirname(path), {}).items():
                self.add(path, zxid, False, because)


class Walk:
    """Goes through the facts of one node. `now` is the life that the node has, `until` the last fact of it."""

    def __init__(self, nodes, path):
        self.nodes = nodes
        self.path = path
        self.now = None
        self.deletes = sorted(nodes.deletes.get(path, ()))

    def complain(self, what, fact):
        self.nodes.complain("%s %s" % (self.path, what), fact.because)

    @staticmethod
    def complete(facts):
        """What is said twice at one zxid is said once with all that is known: who wrote which version."""
        for of, written in (("version", "data"), ("aversion", "list")):
            known = {(fact.zxid, getattr(fact, of)): getattr(fact, written) for fact in facts
                     if getattr(fact, written) is not None}
            for fact in facts:
                if getattr(fact, written) is None and getattr(fact, of) is not None:
                    setattr(fact, written, known.get((fact.zxid, getattr(fact, of))))

    def all(self, facts):
        self.complete(facts)
        for fact in facts:
            if not fact.present:
                if self.now is not None:
                    self.ends(fact)
                self.now = None
                continue
            if self.now is None or fact.life is not None and fact.life != self.now.life:
                self.begins(fact)
            self.now.goes_on(fact)

    def begins(self, fact):
        if self.now is not None:
            self.ends(fact)
        elif fact.life is None and not self.spend("create"):
            self.complain("is there (%s), but nobody has made it" % fact, fact)
        if fact.life is not None and fact.life != fact.zxid:
            self.complain("is there again (%s): its end was undone, or was none" % fact, fact)
        self.now = Life(self, fact)

    def spend(self, what):
        """Uses up a request without an answer that may have done this."""
        numbered = posixpath.join(posixpath.dirname(self.path), "n-")
        for path in (self.path, numbered if posixpath.basename(self.path).startswith("n-") else None):
            if self.nodes.open[what, path]:
                return self.nodes.open[what, path].pop()
        return None

    def ends(self, fact):
        """Something has ended the life between its last fact and this one."""
        life = self.now
        found = bisect.bisect_right(self.deletes, life.until)
        if found < len(self.deletes) and self.deletes[found] <= fact.zxid:
            return
        if life.may_have_ended(fact) or self.spend("delete"):
            return
        # Of a life of which nothing else is known, nobody knows whose node it was.
        if life.life is not None:
            self.complain("was %s, and is %s: an answered write was undone, or a session's node went early"
                          % (life.last, fact), fact)


class Life:
    """What is known of a node between its creation and its end."""

    def __init__(self, walk, fact):
        self.walk = walk
        self.life = fact.life
        self.owner = None
        self.until = fact.zxid
        self.last = fact
        self.version = self.aversion = self.pzxid = self.cversion = None
        self.mzxid = self.data = self.list = None
        self.had_child = False

    def goes_on(self, fact):
        self.owner = fact.owner if fact.owner is not None else self.owner
        self.written(fact)
        self.listed(fact)
        if fact.pzxid is not None:
            self.children(fact)
        self.until, self.last = fact.zxid, fact
        session = self.walk.nodes.sessions.get(self.owner)
        if fact.life is not None and session and session.ended_at is not None and fact.zxid >= session.ended_at:
            self.walk.complain("is there (%s) behind the end of its session" % fact, fact)

    def counts(self, what, fact, mark, open_kind):
        """A version that only grows, by one with each write; what each write wrote."""
        before, version = getattr(self, what), getattr(fact, what)
        written = getattr(fact, mark)
        if version is None:
            return
        if before is not None and version < before:
            self.walk.complain("has %s %d behind %d: an answered write was undone, or a version was given out twice (%s)"
                               % (what, version, before, fact), fact)
        elif version == before:
            had = getattr(self, mark)
            if None not in (written, had) and written != had:
                self.walk.complain("has %s %d twice, of %s and of %s" % (what, version, had, written), fact)
            setattr(self, mark, had if written is None else written)
        else:
            if before is not None:
                unknown = version - before - (written is not None)
                for _ in range(unknown):
                    if not self.walk.spend(open_kind):
                        self.walk.complain("has %s %d behind %d, and nobody has written between (%s)"
                                           % (what, version, before, fact), fact)
                        break
            setattr(self, mark, written)
        setattr(self, what, version)

    def written(self, fact):
        before = self.version
        self.counts("version", fact, "data", "set")
        if fact.mzxid is not None:
            if before == fact.version and self.mzxid not in (None, fact.mzxid):
                self.walk.complain("has version %d twice, at %d and at %d" % (before, self.mzxid, fact.mzxid), fact)
            self.mzxid = fact.mzxid
        elif before != self.version:
            self.mzxid = None

    def listed(self, fact):
        self.counts("aversion", fact, "list", "set list")

    def children(self, fact):
        self.had_child |= fact.pzxid != self.life
        if self.pzxid is not None and fact.pzxid < self.pzxid:
            self.walk.complain("has children of %d, behind those of %d: a change was undone" % (fact.pzxid, self.pzxid), fact)
        if fact.pzxid == self.pzxid:
            if None not in (fact.cversion, self.cversion) and fact.cversion != self.cversion:
                self.walk.complain("has two cversions at one pzxid, %d: part of a transaction was seen" % fact.pzxid, fact)
            self.cversion = self.cversion if fact.cversion is None else fact.cversion
        else:
            self.pzxid, self.cversion = fact.pzxid, fact.cversion

    def may_have_ended(self, fact):
        """Without a delete: with its session, or because nobody needs it."""
        if self.owner is None:
            # Nobody has had a Stat of it, not even who made it.
            return self.walk.spend("create") is not None
        if self.owner == 0:
            return False
        if self.owner > 0:
            session = self.walk.nodes.sessions.get(self.owner)
            return session is not None and session.may_be_over(fact)
        made = self.walk.nodes.made.get((self.walk.path, self.life))
        if self.owner == CONTAINER:
            return self.had_child
        return made is None or fact.because["ended"] >= made + (self.owner & TTL_BITS) * 1000
