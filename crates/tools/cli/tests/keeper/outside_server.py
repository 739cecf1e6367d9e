"""A plugin of pytest: kazoo's own tests meet a server that somebody else started, at OUTSIDE_SERVER.

The harness of kazoo starts three servers and wants to stop and start them. Here it gets three addresses instead. Each is
a gate, a port that passes bytes on to the server. A stopped gate cuts its connections and accepts none, which a client
cannot tell from a stopped server, and the server itself is left alone. Tests that stop nothing get the server's address.
"""

import logging
import os
import pathlib
import select
import socket
import threading

import kazoo.testing.harness as harness
import pytest

HERE = pathlib.Path(__file__).parent
ADDRESS = os.environ["OUTSIDE_SERVER"]


class Server:
    """The server itself."""

    running = True
    address = ADDRESS

    def run(self):
        raise AssertionError("this test stops a server: name it in kazoo-behind-gates")

    stop = run


class Gate:
    """A port in front of the server that can be shut."""

    def __init__(self):
        self.listener = None
        self.connections = set()
        with socket.create_server(("127.0.0.1", 0)) as chosen:
            self.port = chosen.getsockname()[1]
        self.address = "127.0.0.1:%d" % self.port
        self.run()

    @property
    def running(self):
        return self.listener is not None

    def run(self):
        if self.listener is None:
            self.listener = socket.create_server(("127.0.0.1", self.port))
            threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def stop(self):
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept(self, listener):
        host, port = ADDRESS.rsplit(":", 1)
        while True:
            try:
                client = listener.accept()[0]
            except OSError:
                return
            try:
                server = socket.create_connection((host, int(port)))
            except OSError:
                client.close()
                continue
            threading.Thread(target=self.pass_on, args=(client, server), daemon=True).start()

    def pass_on(self, client, server):
        self.connections.add(client)
        other = {client: server, server: client}
        try:
            while True:
                for ready in select.select(list(other), [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    other[ready].sendall(data)
        except OSError:
            pass
        finally:
            self.connections.discard(client)
            client.close()
            server.close()


class Cluster:
    """What the harness asks of its cluster."""

    def __init__(self, servers):
        self.servers = servers

    def __iter__(self):
        return iter(self.servers)

    def __getitem__(self, index):
        return self.servers[index]

    def start(self):
        for server in self.servers:
            if not server.running:
                server.run()

    def terminate(self):
        pass

    def get_logs(self):
        return []


THE_SERVER = Cluster([Server()])
cluster = THE_SERVER
counted = "0 passed, 0 failed"
harness.get_global_cluster = lambda: cluster


def listed(name):
    """The tests that a file names, each with what it says about it."""
    tests = {}
    for line in (HERE / name).read_text().splitlines():
        if line and not line.startswith("#"):
            test, _, reason = line.partition("  ")
            assert reason.strip(), "%s: no reason for %s" % (name, test)
            tests[test] = reason.strip()
    return tests


LEFT_OUT = listed("kazoo-left-out")
BEHIND_GATES = listed("kazoo-behind-gates")
SLOW = listed("kazoo-slow") if "OUTSIDE_SERVER_SHORT" in os.environ else {}


def name_of(item):
    return item.nodeid.rsplit("tests/", 1)[-1]


def pytest_collection_modifyitems(config, items):
    names = {name_of(item) for item in items}
    # A name that no test has any more would leave out nothing, and nobody would know. A run of some tests cannot tell.
    if len(names) > 300:
        for name in {**LEFT_OUT, **BEHIND_GATES, **SLOW}:
            assert name in names, "no test is called %s" % name
    out = {**LEFT_OUT, **SLOW}
    config.hook.pytest_deselected(items=[item for item in items if name_of(item) in out])
    items[:] = [item for item in items if name_of(item) not in out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    global cluster
    if name_of(item) not in BEHIND_GATES:
        return (yield)
    cluster = Cluster([Gate(), Gate(), Gate()])
    try:
        return (yield)
    finally:
        for gate in cluster:
            gate.stop()
        cluster = THE_SERVER


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    # A test that skips itself proves nothing.
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = "skipped itself: %s" % (report.longrepr[2],)
    return report


def pytest_terminal_summary(terminalreporter):
    global counted
    count = {outcome: len(terminalreporter.getreports(outcome)) for outcome in ("passed", "failed", "error")}
    counted = "%d passed, %d failed" % (count["passed"], count["failed"] + count["error"])


@pytest.hookimpl(trylast=True)
def pytest_unconfigure():
    # Clients that tests leave behind go on complaining until the process ends.
    logging.disable()
    print(counted)
