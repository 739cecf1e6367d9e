"""Clusters that are dead, or not the one that is meant: with a time-out everything fails in time, and the status says what was tried."""

import json
import sys
import time

import fdb

fdb.api_version(730)
dead = fdb.open(sys.argv[1])
dead.options.set_transaction_timeout(700)


def error_of(action):
    start = time.monotonic()
    try:
        action()
    except fdb.FDBError as error:
        assert time.monotonic() - start < 1.5, "it took too long"
        return error.code
    raise AssertionError("it should have failed")


tr = dead.create_transaction()
assert error_of(lambda: tr[b"a"].wait()) == 1031
assert error_of(lambda: dead.get(b"a")) == 1031
tr = dead.create_transaction()
tr[b"a"] = b"b"
assert error_of(lambda: tr.commit().wait()) == 1031
tr = dead.create_transaction()
assert error_of(lambda: tr.get_read_version().wait()) == 1031

dead.options.set_transaction_timeout(20_000)
document = json.loads(dead[b"\xff\xff/status/json"][:])["client"]
assert not document["database_status"]["available"]
assert document["messages"], document
tried = document["coordinators"]["coordinators"]
assert [entry["address"] for entry in tried] == sys.argv[2].split(","), document
print("done")
