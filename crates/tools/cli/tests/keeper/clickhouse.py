"""A ClickHouse of today within Python (chdb), in a process of its own, with tables whose rows are nodes."""

import json
import os
import pathlib
import subprocess
import sys

import stage as theatre

PYTHON = theatre.INSTALLED / "chdb/bin/python"
SESSION_MS = 30_000

CONFIG = """<clickhouse>
<logger><level>warning</level><log>%(directory)s/log</log><errorlog>%(directory)s/errors</errorlog></logger>
<zookeeper>%(nodes)s<session_timeout_ms>%(session)d</session_timeout_ms>%(form)s</zookeeper>
<macros><shard>one</shard><replica>%(name)s</replica></macros>
<keeper_map_path_prefix>/keeper_map</keeper_map_path_prefix>
</clickhouse>
"""


class Refused(Exception):
    """An error that ClickHouse answers with."""


def answer_statements(directory):
    """What each of the processes does: a statement a line, and the rows or the error of each."""
    import chdb

    # ClickHouse writes to the output, too.
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    connection = chdb.connect("%s/data?config-file=%s/config.xml" % (directory, directory))
    for line in sys.stdin:
        try:
            answer = {"rows": str(connection.query(json.loads(line), "TabSeparated")).splitlines()}
        except Exception as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=said, flush=True)


class ClickHouse:
    """A process with a ClickHouse in it. `form`: settings of its connections."""

    def __init__(self, stage, name, addresses, form=""):
        self.name = name
        directory = stage.work / name
        directory.mkdir()
        node = "<node><host>%s</host><port>%s</port></node>"
        nodes = "".join(node % tuple(address.rsplit(":", 1)) for address in addresses)
        settings = {"nodes": nodes, "session": SESSION_MS, "form": form}
        config = CONFIG % {"directory": directory, "name": name, **settings}
        (directory / "config.xml").write_text(config)
        self.child = subprocess.Popen(
            [PYTHON, __file__, directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(stage.work / (name + ".log"), "w"),
            text=True,
        )
        stage.processes.append(self)

    def end(self):
        self.child.kill()
        self.child.wait()

    def ask(self, statement):
        """The rows, each a text with its values behind tabs."""
        print(json.dumps(statement), file=self.child.stdin, flush=True)
        said = self.child.stdout.readline()
        assert said, "%s has ended by itself" % self.name
        answer = json.loads(said)
        if "error" in answer:
            raise Refused("%s: %s: %s" % (self.name, statement[:80], answer["error"][:400]))
        return answer["rows"]

    def one(self, statement):
        (value,) = self.ask(statement)
        return value

    def surely(self, statement, seconds=120):
        """Until it is done: it may be tried again and again."""
        theatre.wait_for(statement[:60], lambda: (self.ask(statement), True)[1], seconds)


def create(name):
    return "CREATE TABLE IF NOT EXISTS %s (k UInt64, v String) ENGINE = KeeperMap('/%s') PRIMARY KEY k" % (name, name)


if __name__ == "__main__":
    answer_statements(pathlib.Path(sys.argv[1]))
