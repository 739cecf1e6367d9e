"""What the judges that run whole products share: processes, the server that keeps their nodes, and the count of parts.

The server is one of three. With HOST:PORT somebody else runs it, and it stays up. With --plinth BINARY it is a cluster
of three servers with two copies of everything, and two gateways, each of which can be killed. With --zookeeper it is a
ZooKeeper 3.9.3 that can be killed, to see what the product itself makes of that.
"""

import argparse
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from ports import HOST, ask_word, free_port, serves

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[4]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target")
INSTALLED = pathlib.Path(os.environ.get("KEEPER_CLIENTS") or TARGET / "keeper-clients")
JARS_OF_ZOOKEEPER = INSTALLED / "java/lib"

LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def need(*things):
    """A product that is missing makes a run fail: what did not run has not passed."""
    for thing in things:
        if not pathlib.Path(thing).exists():
            sys.exit("%s is missing; run scripts/need-keeper-clients" % thing)


def wait_for(what, condition, seconds=60.0, pause=0.2):
    """The first result of `condition` that counts as true. An error counts as not yet."""
    deadline = time.monotonic() + seconds
    while True:
        last = None
        try:
            result = condition()
            if result:
                return result
        except Exception as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError("%s: not within %d s%s" % (what, seconds, "" if last is None else "; %r" % last))
        time.sleep(pause)


def equal(found, expected, what="found"):
    assert found == expected, "%s %r instead of %r" % (what, found, expected)


class Process:
    """A process in the work directory, which dies with the judge. It is started by the main thread only.

    `writes`: a file that it writes its errors to, if it has one.
    """

    def __init__(self, work, name, command, environment=None, writes=None):
        self.name = name
        self.command = [str(word) for word in command]
        self.environment = {**os.environ, **(environment or {})}
        self.log = work / (name + ".log")
        self.writes = writes
        self.child = None

    def start(self):
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
                preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        return self

    def runs(self):
        return self.child is not None and self.child.poll() is None

    def send(self, number):
        self.expect_running()
        self.child.send_signal(number)

    def kill(self):
        self.send(signal.SIGKILL)
        self.child.wait()

    def stop(self, seconds=60):
        self.send(signal.SIGTERM)
        self.child.wait(seconds)

    def wait_for(self, what, condition, seconds=60.0):
        """As wait_for, but for a process that ends instead."""
        wait_for(what, lambda: not self.runs() or condition(), seconds)
        self.expect_running()

    def expect_running(self):
        """Fails with the last words of a process that has ended."""
        if self.runs():
            return
        words = "%s has ended by itself, with %s:" % (self.name, self.child and self.child.returncode)
        for file in filter(None, [self.log, self.writes]):
            if file.exists():
                words += "\n%s" % file.read_text(errors="replace")[-2000:]
        raise AssertionError(words)

    def end(self):
        if self.runs():
            self.child.kill()
            self.child.wait()


class Stage:
    """The processes of a run, and its directory."""

    def __init__(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="keeper-judge-"))
        self.processes = []

    def process(self, name, command, environment=None, writes=None):
        process = Process(self.work, name, command, environment, writes)
        self.processes.append(process)
        return process.start()

    def end(self, passed):
        for process in reversed(self.processes):
            process.end()
        if passed:
            shutil.rmtree(self.work, ignore_errors=True)
        else:
            print("logs in %s" % self.work)


class Outside:
    """A server that somebody else runs."""

    def __init__(self, address):
        self.addresses = address.split(",")

    def faults(self):
        return []


class ZooKeeper:
    """A ZooKeeper of the judge's own, which dies and comes back."""

    def __init__(self, stage):
        port = free_port()
        self.addresses = ["%s:%d" % (HOST, port)]
        command = [HERE / "zookeeper-server", "run", port, stage.work / "zookeeper", "--no-sync"]
        self.server = stage.process("zookeeper", [*command, "--jars", JARS_OF_ZOOKEEPER])
        self.wait()

    def wait(self):
        for address in self.addresses:
            host, port = address.split(":")
            wait_for("a server at %s" % address, lambda: serves(host, int(port)))

    def faults(self):
        return [("ZooKeeper killed", lambda: self.bounce(3.0))]

    def bounce(self, seconds):
        self.server.kill()
        time.sleep(seconds)
        self.server.start()
        self.wait()


class Plinth:
    """A cluster of three servers, any one of which may die, and two gateways."""

    def __init__(self, stage, binary):
        self.binary = pathlib.Path(binary).resolve()
        need(self.binary)
        self.file = stage.work / "plinth.cluster"
        ports = [free_port() for _ in range(3)]
        self.file.write_text("judge:judge@%s\n" % ",".join("%s:%d" % (HOST, port) for port in ports))
        self.servers = [self.start_server(stage, i, port) for i, port in enumerate(ports)]
        self.cli("configure new double ssd")
        self.addresses = ["%s:%d" % (HOST, free_port()) for _ in range(2)]
        self.gateways = [self.start_gateway(stage, i, address) for i, address in enumerate(self.addresses)]
        self.wait()

    def start_server(self, stage, i, port):
        command = [self.binary, "server", "--listen", "%s:%d" % (HOST, port), "-C", self.file]
        command += ["--data-dir", stage.work / ("plinth-%d" % i), "--machine", "m%d" % i, "--zone", "z%d" % i]
        command += ["--cache-mib", "64", "--trace", stage.work / ("server-%d.jsonl" % i)]
        return stage.process("server-%d" % i, command)

    def start_gateway(self, stage, i, address):
        command = [self.binary, "keeper", "server", "--listen", address, "-C", self.file]
        command += ["--commands", "*", "--max-connections-per-address", "0"]
        return stage.process("gateway-%d" % i, [*command, "--trace", stage.work / ("gateway-%d.jsonl" % i)])

    def cli(self, statement):
        command = [str(self.binary), "cli", "-C", str(self.file), "--exec", statement]
        said = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        assert said.returncode == 0, "%s: %s" % (statement, said.stderr)
        return said.stdout

    def is_whole(self):
        cluster = json.loads(self.cli("status json"))["cluster"]
        whole = cluster["database_available"] and cluster["full_replication"] and len(cluster["processes"]) == 3
        # Entries of an earlier generation of the log may lie on one server only.
        return whole and cluster["log_generations"] == 1

    def wait(self):
        for address in self.addresses:
            host, port = address.split(":")
            wait_for("a gateway at %s" % address, lambda: serves(host, int(port)))

    def faults(self):
        """What can die and come back. A short run takes the first two, one of each kind."""
        return [
            ("a gateway killed", lambda: self.bounce_gateways(0)),
            ("a database server killed", lambda: self.bounce_server(0)),
            ("the other gateway killed", lambda: self.bounce_gateways(1)),
            ("another database server killed", lambda: self.bounce_server(1)),
            ("a gateway and a database server killed", lambda: self.bounce_both(0, 2)),
            ("both gateways killed", lambda: self.bounce_gateways(0, 1)),
            ("a gateway hung", lambda: self.hang(self.gateways[1], 12)),
            ("a database server hung", lambda: self.hang(self.servers[2], 6)),
        ]

    def bounce_gateways(self, *which):
        for i in which:
            self.gateways[i].kill()
        time.sleep(3)
        for i in which:
            self.gateways[i].start()
        self.wait()

    def bounce_server(self, i):
        self.servers[i].kill()
        time.sleep(3)
        self.servers[i].start()
        # The next server that dies must find two copies of everything.
        wait_for("the whole cluster", self.is_whole, 120, 1)

    def hang(self, process, seconds):
        process.send(signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            process.send(signal.SIGCONT)
        wait_for("the whole cluster", self.is_whole, 120, 1)
        self.wait()

    def bounce_both(self, gateway, server):
        self.gateways[gateway].kill()
        self.bounce_server(server)
        self.gateways[gateway].start()
        self.wait()


class Judge:
    """Runs the parts of a judgement and counts them."""

    def __init__(self, about):
        raw = argparse.RawDescriptionHelpFormatter
        parser = argparse.ArgumentParser(description=about, formatter_class=raw)
        parser.add_argument("address", nargs="?", metavar="HOST:PORT[,…]", help="a server that runs already")
        parser.add_argument("--plinth", metavar="BINARY", help="a cluster and two gateways of its own")
        parser.add_argument("--zookeeper", action="store_true", help="a ZooKeeper of its own")
        parser.add_argument("--short", action="store_true")
        parser.add_argument("--verbose", action="store_true", help="tells each part and the seconds that it took")
        self.options = parser.parse_args()
        given = [self.options.address, self.options.plinth, self.options.zookeeper]
        if sum(map(bool, given)) != 1:
            parser.error("an address, --plinth BINARY or --zookeeper")
        self.short = self.options.short
        self.passed = self.failed = 0
        self.under_way = "the beginning"

    def part(self, name, function, *arguments):
        """Runs one part. Returns whether it passed; others go on without it."""
        start = time.monotonic()
        self.under_way = name
        try:
            function(*arguments)
        except Exception as error:
            self.failed += 1
            print("%s FAILED: %s" % (name, error), flush=True)
            if self.options.verbose:
                traceback.print_exc(file=sys.stdout)
            return False
        self.passed += 1
        if self.options.verbose:
            print("%s: %.1f s" % (name, time.monotonic() - start), flush=True)
        return True

    def run(self, play, *needed):
        """play(judge, stage, keeper) runs the parts. Ends the process: with 0 only if all passed."""
        need(*needed)
        if self.options.zookeeper:
            need(JARS_OF_ZOOKEEPER)
        # So that an interrupted run ends its processes, too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        stage = Stage()
        try:
            play(self, stage, self.keeper(stage))
        except (SystemExit, KeyboardInterrupt):
            self.failed += 1
            print("interrupted in: %s" % self.under_way)
        except Exception as error:
            self.failed += 1
            print("the play ended early: %s" % error)
            traceback.print_exc(file=sys.stdout)
        finally:
            stage.end(self.failed == 0 and self.passed > 0)
        print("%d passed, %d failed" % (self.passed, self.failed))
        sys.exit(0 if self.failed == 0 else 1)

    def keeper(self, stage):
        if self.options.address:
            return Outside(self.options.address)
        return ZooKeeper(stage) if self.options.zookeeper else Plinth(stage, self.options.plinth)
