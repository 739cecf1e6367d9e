"""Directories for the Rust client (`make`), and a look at those that it made (`look`)."""

import sys

import fdb

fdb.api_version(730)
db = fdb.open()
if sys.argv[1] == "make":
    plain = fdb.directory.create_or_open(db, ("python", "plain"), layer=b"rows")
    db[plain.pack((1, "x"))] = b"from python"
    partition = fdb.directory.create_or_open(db, ("python", "partition"), layer=b"partition")
    inside = partition.create_or_open(db, ("inside",))
    db[inside.pack((2,))] = b"from python, inside"
else:
    plain = fdb.directory.open(db, ("rust", "plain"), layer=b"rows")
    assert db[plain.pack((1, "x"))] == b"from rust"
    partition = fdb.directory.open(db, ("rust", "partition"))
    assert isinstance(partition, fdb.directory_impl.DirectoryPartition)
    assert partition.list(db) == ["inside"]
    inside = fdb.directory.open(db, ("rust", "partition", "inside"))
    assert db[inside.pack((2,))] == b"from rust, inside"
    assert sorted(fdb.directory.list(db)) == ["python", "rust"]
    fdb.directory.remove(db, ("rust",))
    assert db[plain.pack((1, "x"))] is None
print("done")
