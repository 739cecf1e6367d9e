#!/usr/bin/env python3
"""Free ports, and whether a server serves at one.

    ports.py free [N]        prints one, the first of N in a row
    ports.py serves PORT     ends with 0 if clients can have a session there
    ports.py wait PORT       returns when they can; ends with 1 after a minute
"""

import random
import socket
import sys
import time

HOST = "127.0.0.1"


def is_free(port):
    try:
        with socket.create_server((HOST, port)):
            return True
    except OSError:
        return False


def free_port(count=1):
    """Below the ports that Linux takes for outgoing connections: another process would get such a port later. Above those
    that tests of clients take by themselves: the Go client's 10,000 to 16,017 at random, ZooKeeper's 16,607 to 21,992;
    and above those of this project's other tests (`tests/common`), whose servers come back to theirs: up to 28,000.
    """
    while True:
        port = random.randrange(28_000, 32_700)
        if all(is_free(port + i) for i in range(count)):
            return port


def ask_word(host, port, word):
    with socket.create_connection((host, port), 2) as connection:
        connection.settimeout(2)
        connection.sendall(word)
        said = b""
        while part := connection.recv(65536):
            said += part
    return said


def serves(host, port):
    """A ZooKeeper says imok a while before it takes sessions, but it does not say rw."""
    try:
        return ask_word(host, port, b"isro") == b"rw"
    except OSError:
        return False


def wait(host, port, seconds=60):
    deadline = time.monotonic() + seconds
    while not serves(host, port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def main(arguments):
    match arguments:
        case ["free"]:
            print(free_port())
            return 0
        case ["free", count]:
            print(free_port(int(count)))
            return 0
        case ["serves", port]:
            return 0 if serves(HOST, int(port)) else 1
        case ["wait", port]:
            if wait(HOST, int(port)):
                return 0
            print("nothing serves at %s:%s" % (HOST, port), file=sys.stderr)
            return 1
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
