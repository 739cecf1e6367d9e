"""A tour of FoundationDB's API through the unmodified Python binding, against the cluster file that is given.

Between the marks `ready` and `go on` (on standard output and input) the test kills a server process.
"""

import json
import struct
import sys
import threading
import time

import fdb

version = int(sys.argv[2])
fdb.api_version(version)
db = fdb.open(sys.argv[1])
db.options.set_transaction_timeout(60_000)
db.clear_range(b"", b"\xff")


def error_of(action):
    try:
        action()
    except fdb.FDBError as error:
        return error.code
    raise AssertionError("it should have failed")


# ---- single keys, ranges, selectors ----
db[b"hello"] = b"world"
assert db[b"hello"] == b"world"
assert db[b"nothing"] is None
tr = db.create_transaction()
assert not tr[b"nothing"].present()


@fdb.transactional
def fill(tr, count):
    for i in range(count):
        tr[b"row/%05d" % i] = b"value %d" % i


fill(db, 2000)
rows = list(db.get_range_startswith(b"row/"))
assert [kv.key for kv in rows] == [b"row/%05d" % i for i in range(2000)]
for mode in (
    fdb.StreamingMode.want_all,
    fdb.StreamingMode.iterator,
    fdb.StreamingMode.small,
    fdb.StreamingMode.medium,
    fdb.StreamingMode.large,
    fdb.StreamingMode.serial,
):
    found = list(db.create_transaction().get_range(b"row/", b"row0", streaming_mode=mode))
    assert len(found) == 2000, mode
assert error_of(
    lambda: list(db.create_transaction().get_range(b"a", b"b", streaming_mode=fdb.StreamingMode.exact))
) == 2210
last = list(db.get_range(b"row/", b"row0", limit=3, reverse=True))
assert [kv.key for kv in last] == [b"row/01999", b"row/01998", b"row/01997"]
tr = db.create_transaction()
assert tr.get_key(fdb.KeySelector.first_greater_than(b"row/00010")).wait() == b"row/00011"
assert tr.get_key(fdb.KeySelector.last_less_than(b"row/00010") + 5).wait() == b"row/00014"
assert tr.snapshot[b"hello"] == b"world"

# ---- read your writes, conflicts ----
tr = db.create_transaction()
tr[b"row/00000"] = b"mine"
del tr[b"row/00001":b"row/00003"]
assert [kv.key for kv in tr.get_range(b"row/", b"row0", limit=2)] == [b"row/00000", b"row/00003"]
assert tr[b"row/00000"] == b"mine"
tr.cancel()
assert error_of(lambda: tr[b"row/00000"].wait()) == 1025

first, second = db.create_transaction(), db.create_transaction()
first[b"hello"].wait(), second[b"hello"].wait()
first[b"a"], second[b"b"] = b"1", b"1"
first.add_write_conflict_key(b"hello")
first.commit().wait()
assert error_of(lambda: second.commit().wait()) == 1020
second.on_error(1020).wait()
assert error_of(lambda: second.on_error(2000).wait()) == 2000

# ---- atomic operations from many threads ----
@fdb.transactional
def count(tr):
    tr.add(b"count", struct.pack("<q", 1))
    tr.max(b"most", struct.pack("<q", 7))


threads = [threading.Thread(target=lambda: [count(db) for _ in range(50)]) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert struct.unpack("<q", db[b"count"])[0] == 400
assert struct.unpack("<q", db[b"most"])[0] == 7

# ---- versionstamps ----
tr = db.create_transaction()
tr.set_versionstamped_key(fdb.tuple.pack_with_versionstamp(("log", fdb.tuple.Versionstamp())), b"entry")
stamp = tr.get_versionstamp()
tr.commit().wait()
(entry,) = db.get_range_startswith(fdb.tuple.pack(("log",)))
assert fdb.tuple.unpack(entry.key)[1].tr_version == stamp.wait().value
assert tr.get_committed_version() > 0
readonly = db.create_transaction()
readonly[b"hello"].wait()
readonly.commit().wait()
assert readonly.get_committed_version() == -1

# ---- watches ----
watch = db.create_transaction()
changed = watch.watch(b"hello")
watch.commit().wait()
assert not changed.is_ready()
db[b"hello"] = b"again"
changed.wait()
watch = db.create_transaction()
unchanged = watch.watch(b"hello")
watch.commit().wait()
unchanged.cancel()
assert error_of(unchanged.wait) == 1101

# ---- layers ----
directory = fdb.directory.create_or_open(db, ("tour", "a"))
db[directory.pack((1, "x", None, b"\x00", -5.5))] = b"in a directory"
assert [directory.unpack(kv.key) for kv in db[directory.range()]] == [(1, "x", None, b"\x00", -5.5)]
fdb.directory.move(db, ("tour", "a"), ("tour", "b"))
assert fdb.directory.list(db, ("tour",)) == ["b"]
fdb.directory.remove(db, ("tour",))
assert not fdb.directory.exists(db, ("tour",))

# ---- options, limits, errors ----
tr = db.create_transaction()
tr[b"k" * 10_001] = b""
assert error_of(lambda: tr.commit().wait()) == 2102
tr = db.create_transaction()
tr[b"k"] = b"v" * 100_001
assert error_of(lambda: tr.commit().wait()) == 2103
tr = db.create_transaction()
for i in range(120):
    tr[b"large/%03d" % i] = b"v" * 100_000
assert error_of(lambda: tr.commit().wait()) == 2101
tr = db.create_transaction()
tr[b"\xff/not ours"] = b""
assert error_of(lambda: tr.commit().wait()) == 2004
tr = db.create_transaction()
assert tr.get_range(b"b", b"a").to_list() == []
tr.clear_range(b"b", b"a")
assert error_of(lambda: tr.commit().wait()) == 2005


def read_the_first_version():
    tr = db.create_transaction()
    tr.set_read_version(1)
    tr[b"hello"].wait()


# A database younger than five seconds still has its first versions, so wait until they are too old.
for _ in range(100):
    try:
        read_the_first_version()
    except fdb.FDBError as error:
        assert error.code == 1007
        break
    time.sleep(0.1)
assert error_of(read_the_first_version) == 1007
tr = db.create_transaction()
assert error_of(lambda: tr.options.set_authorization_token("")) == 2006
tr.options.set_authorization_token("of no use where clients need none")
assert tr[b"hello"].wait() == b"again"
tenant = db.open_tenant(b"no such tenant")
if tenant is not None:  # the binding of 8.0 returns None
    tr = tenant.create_transaction()
    assert error_of(lambda: tr[b"k"].wait()) == 2131
if version >= 710 and tenant is not None:
    fdb.tenant_management.create_tenant(db, b"tour")
    assert error_of(lambda: fdb.tenant_management.create_tenant(db, b"tour")) == 2132
    tenants = fdb.tenant_management.list_tenants(db, b"", b"\xff", 10).to_list()
    assert b"tour" in [tenant.key for tenant in tenants]
    tenant = db.open_tenant(b"tour")
    tenant[b"hello"] = b"tenant"
    assert tenant[b"hello"] == b"tenant" and db[b"hello"] == b"again"
    assert error_of(lambda: fdb.tenant_management.delete_tenant(db, b"tour")) == 2133
    del tenant[b"hello"]
    fdb.tenant_management.delete_tenant(db, b"tour")

# ---- special keys ----
document = json.loads(db[b"\xff\xff/status/json"][:])
assert document["client"]["database_status"]["available"]
assert document["cluster"]["processes"]
assert b"@" in db[b"\xff\xff/connection_string"]
assert db[b"\xff\xff/cluster_file_path"] == sys.argv[1].encode()

# ---- streams ----
db[b"stream/a"] = b"1"
db.clear_range(b"stream/a", b"streams and more")
rows = list(db.get_range(b"\xff\xff/streams/tour/", b"\xff\xff/streams/tour0"))[-2:]
changes = [change for _, value in rows for change in fdb.tuple.unpack(value)]
assert changes == [(0, b"stream/a", b"1"), (1, b"stream/a", b"stream0")], changes
consumer = b"\xff\xff/stream_consumers/tour/python"


@fdb.transactional
def append_and_note(tr):
    tr.options.set_special_key_space_enable_writes()
    tr[b"\xff\xff/stream_append/log"] = b"noted"
    tr[consumer] = rows[1].key[-12:]


append_and_note(db)
at = db[consumer][:]
rest = list(db.get_range(b"\xff\xff/streams/tour/" + at, b"\xff\xff/streams/tour0"))
assert [row.key for row in rest] == [rows[1].key]
log = list(db.get_range(b"\xff\xff/streams/log/", b"\xff\xff/streams/log0", limit=1, reverse=True))
assert [value for _, value in log] == [b"noted"] and log[0].key[-12:] > at

# ---- change data capture, which the binding has since 8.0 ----
if hasattr(db, "register_cdc_stream") and version >= 800:
    ranges = [(b"cdc/", b"cdc0"), (b"more/", b"more0")]
    stream_id = db.register_cdc_stream(b"capture", ranges=ranges).wait()
    assert db.register_cdc_stream(b"capture", ranges=ranges).wait() == stream_id
    assert error_of(lambda: db.register_cdc_stream(b"capture", b"a", b"b").wait()) == 2000
    (listed,) = [stream for stream in db.list_cdc_streams().wait() if stream.name == b"capture"]
    assert listed.stream_id == stream_id and [tuple(r) for r in listed.ranges] == ranges
    tr = db.create_transaction()
    tr[b"cdc/a"] = b"1"
    tr.add(b"more/b", b"\x02")
    tr[b"elsewhere"] = b"x"
    tr.commit().wait()
    captured = tr.get_committed_version()
    consumer = db.create_cdc_consumer(b"capture").wait()

    def consume_through(consumer, wanted):
        groups = []
        while consumer.get_position().last_consumed_version < wanted:
            groups += consumer.consume().wait().mutations
        return [(group.version, [tuple(m) for m in group.mutations]) for group in groups]

    changes = [(0, b"cdc/a", b"1"), (2, b"more/b", b"\x02")]
    assert consume_through(consumer, captured) == [(captured, changes)]
    consumer.acknowledge().wait()
    at = consumer.get_position()
    db.clear_range(b"cdc", b"more1")
    resumed = db.resume_cdc_consumer(at).wait()
    tr = db.create_transaction()
    (clear,) = consume_through(resumed, tr.get_read_version().wait())
    assert clear[1] == [(1, b"cdc/", b"cdc0"), (1, b"more/", b"more0")], clear
    db.remove_cdc_stream(b"capture").wait()
    assert error_of(lambda: resumed.consume().wait()) == 2000
    db[b"hello"] = b"again"

# ---- locations of data ----
tr = db.create_transaction()  # kept in a variable: its end would cancel the request
addresses = fdb.locality.get_addresses_for_key(tr, b"row/").wait()
assert addresses
# Addresses include ports since version 630.
assert all((b":" in address) == (version >= 630) for address in addresses)
tr = db.create_transaction()
assert tr.get_estimated_range_size_bytes(b"row/", b"row0").wait() > 2000 * 15
points = tr.get_range_split_points(b"row/", b"row0", 10_000).wait()
assert points[0] == b"row/" and points[-1] == b"row0" and 3 < len(points) < 10

# ---- a thousand transactions in flight, and a server that dies ----
print("ready", flush=True)
sys.stdin.readline()


def start(i):
    tr = db.create_transaction()
    tr[b"flight/%04d" % i] = b"%d" % i
    return tr, tr.commit()


waiting = [start(i) for i in range(1000)]
for i, (tr, commit) in enumerate(waiting):
    while True:
        try:
            commit.wait()
            break
        except fdb.FDBError as error:
            tr.on_error(error).wait()
            tr[b"flight/%04d" % i] = b"%d" % i
            commit = tr.commit()
assert len(list(db.get_range_startswith(b"flight/"))) == 1000
print("done")
