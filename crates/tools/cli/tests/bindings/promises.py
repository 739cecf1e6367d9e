"""What FoundationDB promises its users about reads, through the unmodified Python binding.

Arguments: the cluster file, the API version, and which promise.
"""

import sys
import threading
import time

import fdb

version = int(sys.argv[2])
fdb.api_version(version)
db = fdb.open(sys.argv[1])
db.options.set_transaction_timeout(60_000)
CALLS = 300


def error_of(action):
    try:
        action()
    except fdb.FDBError as error:
        return error.code
    return None


def fill():
    @fdb.transactional
    def rows(tr):
        tr.clear_range(b"", b"\xff")
        for i in range(10):
            tr[b"row/%d" % i] = b"value %d" % i

    rows(db)


# ---- a commit waits for the reads that were begun before it ----

SELECTOR = fdb.KeySelector.first_greater_than(b"row/3")
# Reads that are begun in a transaction and awaited after it, with a check of their results.
FORMS = {
    "get": (lambda tr: tr[b"row/3"], lambda v: v == b"value 3"),
    "absent": (lambda tr: tr[b"row/x"], lambda v: not v.present()),
    "snapshot get": (lambda tr: tr.snapshot[b"row/3"], lambda v: v == b"value 3"),
    "get_key": (lambda tr: tr.get_key(SELECTOR), lambda k: k == b"row/4"),
    "snapshot get_key": (lambda tr: tr.snapshot.get_key(SELECTOR), lambda k: k == b"row/4"),
    "range": (lambda tr: tr.get_range(b"row/", b"row0"), lambda r: len(list(r)) == 10),
    "snapshot range": (lambda tr: tr.snapshot.get_range(b"row/", b"row0"), lambda r: len(list(r)) == 10),
    "reverse range": (
        lambda tr: tr.get_range(b"row/", b"row0", limit=3, reverse=True),
        lambda r: [kv.key for kv in r] == [b"row/9", b"row/8", b"row/7"],
    ),
    "read version": (lambda tr: tr.get_read_version(), lambda v: v.wait() > 0),
    "size": (lambda tr: tr.get_approximate_size(), lambda n: n.wait() >= 0),
    "addresses": (
        lambda tr: fdb.locality.get_addresses_for_key(tr, b"row/3"),
        lambda a: len(a.wait()) == 2,
    ),
    "range size": (lambda tr: tr.get_estimated_range_size_bytes(b"row/", b"row0"), lambda n: n.wait() > 0),
    "several": (lambda tr: [tr[b"row/%d" % i] for i in range(10)], lambda vs: all(v.present() for v in vs)),
}


def read_only(form):
    @fdb.transactional
    def call(tr):
        return form(tr)

    return call


def writing(form):
    @fdb.transactional
    def call(tr):
        begun = form(tr)
        tr[b"written"] = b"x"
        return begun

    return call


def without_own_writes(form):
    @fdb.transactional
    def call(tr):
        tr.options.set_read_your_writes_disable()
        return form(tr)

    return call


def commits():
    fill()
    failed = []
    for name, (form, is_right) in FORMS.items():
        for kind in (read_only, writing, without_own_writes):
            call = kind(form)
            codes = [error_of(lambda: check(is_right(call(db)))) for _ in range(CALLS // 3)]
            codes = [code for code in codes if code is not None]
            if codes:
                failed.append((name, kind.__name__, len(codes), set(codes)))
    assert not failed, failed
    readiness()
    watches()
    together()


def check(holds):
    assert holds


def readiness():
    """Not even a moment passes between the commit's end and the reads'."""
    for i in range(CALLS):
        tr = db.create_transaction()
        begun = [tr.get(b"row/3"), tr.snapshot.get(b"row/4"), tr.get_key(SELECTOR), tr.get_read_version()]
        begun.append(tr.get_versionstamp())
        if i % 2 == 0:
            tr[b"written"] = b"x"
        tr.commit().wait()
        assert all(future.is_ready() for future in begun)
        del tr
        assert begun[0] == b"value 3" and begun[2] == b"row/4"


def watches():
    for i in range(CALLS):
        value, watch = db.get_and_watch(b"row/3")
        assert value == b"value 3" and not watch.is_ready()
        watch.cancel()
    value, watch = db.get_and_watch(b"row/3")
    db[b"row/3"] = b"other"
    watch.wait()
    db[b"row/3"] = b"value 3"
    # A watch fails with the error of its commit.
    one, two = db.create_transaction(), db.create_transaction()
    watch = one.watch(b"row/5")
    one[b"row/6"] = b"value 6"
    two[b"row/5"] = b"value 5"
    two.commit().wait()
    assert error_of(one.commit().wait) == 1020
    assert error_of(watch.wait) == 1020


def together():
    """Several threads at once, as programs do."""
    failed = []

    def work():
        call = read_only(FORMS["get"][0])
        for _ in range(CALLS):
            code = error_of(lambda: check(call(db) == b"value 3"))
            if code is not None:
                failed.append(code)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


# ---- transactions that end without a commit ----


def endings():
    fill()
    for i in range(CALLS):
        tr = db.create_transaction()
        begun = [tr.get(b"row/3"), tr.get_key(SELECTOR), tr.get_range(b"row/", b"row0"), tr.watch(b"row/3")]
        begun.append(tr.get_versionstamp())
        way = i % 4
        if way == 0:
            tr.reset()
        elif way == 1:
            tr.cancel()
        elif way == 2:
            tr.on_error(1020).wait()
            # All reads before it have ended, too.
            assert all(begun[at].is_ready() for at in (0, 1, 4))
        else:
            begun[2] = []  # it holds a reference to the transaction
        del tr
        for future in (begun[0], begun[1], begun[3], begun[4]):
            assert error_of(future.wait) in (None, 1025), way
        assert error_of(begun[3].wait) == 1025
        assert error_of(lambda: list(begun[2])) in (None, 1025)


# ---- the same read again gives the same answer ----


def repeated():
    fill()
    stop = threading.Event()

    def change():
        i = 0
        while not stop.is_set():
            i += 1
            db[b"row/%d" % (i % 10)] = b"changed %d" % i
            del db[b"row/%d" % ((i + 5) % 10)]

    changer = threading.Thread(target=change)
    changer.start()
    try:
        for i in range(CALLS):
            tr = db.create_transaction()
            reader = tr.snapshot if i % 2 else tr

            def answers():
                return [
                    [bytes(v) if v.present() else None for v in [reader[b"row/%d" % n] for n in range(10)]],
                    [(kv.key, kv.value) for kv in reader.get_range(b"row/", b"row0")],
                    [(kv.key, kv.value) for kv in reader.get_range(b"row/", b"row0", limit=3, reverse=True)],
                    [reader.get_key(fdb.KeySelector.first_greater_or_equal(b"row/4") + n).wait() for n in range(-2, 3)],
                ]

            first = answers()
            assert answers() == first
            # Own writes are visible in later reads; all other rows stay the same.
            tr[b"row/3"] = b"mine"
            seen = answers()
            assert seen[0][3] == b"mine" and seen[0][4:] == first[0][4:] and answers() == seen
            assert (b"row/3", b"mine") in seen[1]
            assert [row for row in seen[1] if row[0] != b"row/3"] == [row for row in first[1] if row[0] != b"row/3"]
    finally:
        stop.set()
        changer.join()


# ---- locations of keys ----


def check_locality():
    """As FoundationDB's own tests ask: from a boundary to the last key before the next one is one shard."""
    tr = db.create_transaction()
    tr.options.set_timeout(60_000)
    tr.options.set_read_system_keys()
    boundaries = list(fdb.locality.get_boundary_keys(tr, b"", b"\xff\xff"))
    lasts = [tr.get_key(fdb.KeySelector.last_less_than(key)) for key in boundaries[1:]]
    lasts.append(tr.get_key(fdb.KeySelector.last_less_than(b"\xff\xff")))
    at_begin = [fdb.locality.get_addresses_for_key(tr, key) for key in boundaries]
    at_end = [fdb.locality.get_addresses_for_key(tr, key) for key in lasts]
    assert boundaries[0] == b""
    at_begin, at_end = [[set(a.wait()) for a in addresses] for addresses in (at_begin, at_end)]
    assert at_begin == at_end, list(zip(boundaries, lasts, at_begin, at_end))
    assert all(len(team) == 2 for team in at_begin)
    return boundaries


def locality():
    db.clear_range(b"", b"\xff")
    assert check_locality() == [b"", b"\xff"]
    fill()
    check_locality()
    # Keys with a common prefix, as layers have, and keys that are far apart.
    for first in (0x01, 0x15, 0x60, 0xC0, 0xFE):
        db[bytes([first]) + b"key"] = b"value"
        check_locality()


def shards():
    return len(list(fdb.locality.get_boundary_keys(db, b"", b"\xff\xff")))


def until(what, holds):
    deadline = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def consistent():
    """Shards that move while their addresses are read are asked for once more."""
    try:
        check_locality()
        return True
    except AssertionError:
        return False


def cut():
    """Shards come with data and go with it. The test has made them small."""
    for first in range(0, 5000, 50):

        @fdb.transactional
        def load(tr):
            for i in range(first, first + 50):
                tr[b"row%06d" % i] = b"%06d " % i * 600

        load(db)
    until("the data is cut", lambda: shards() > 8)
    until("cut shards are consistent", consistent)
    db.clear_range(b"", b"\xff")
    until("what stays empty is joined", lambda: shards() == 2)
    until("joined shards are consistent", consistent)


PROMISES = {"commits": commits, "endings": endings, "repeated": repeated, "locality": locality, "cut": cut}
PROMISES[sys.argv[3]]()
print("done")
