"""Does what its input says, `set KEY VALUE` or `get KEY`, by FoundationDB's binding, and answers as the shell does.

The cluster file is `plinth.cluster` in the current directory. Its coordinators have host names.
"""

import sys

import fdb

fdb.api_version(730)
database = fdb.open("plinth.cluster")
for line in sys.stdin:
    statement, key, *value = line.split()
    if statement == "set":
        database[key.encode()] = value[0].encode()
    else:
        print("`%s' is `%s'" % (key, bytes(database[key.encode()]).decode()), flush=True)
