"""What a client may do with a token: the arguments are a cluster file, a token for `app/`, and what is expected."""

import sys

import fdb

fdb.api_version(730)
db = fdb.open(sys.argv[1])
token, expected = sys.argv[2], sys.argv[3]


def outcome(work):
    tr = db.create_transaction()
    tr.options.set_timeout(20000)
    if token:
        tr.options.set_authorization_token(token)
    try:
        work(tr)
        return 0
    except fdb.FDBError as error:
        return error.code


def write(key):
    def work(tr):
        tr[key] = b"from python"
        tr.commit().wait()

    return work


def rows(tr):
    return [key for key, _ in tr[b"app/":b"app0"]]


inside = [outcome(lambda tr: tr[b"app/a"].wait()), outcome(rows), outcome(write(b"app/a"))]
outside = [outcome(lambda tr: tr[b"other"].wait()), outcome(write(b"other")), outcome(write(b"app0"))]
denied = [6000] * 3
if expected == "granted":
    assert inside == [0, 0, 0], inside
else:
    assert inside == denied, inside
assert outside == denied, outside
print("done")
