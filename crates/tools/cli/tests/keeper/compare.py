#!/usr/bin/env python3
"""compare.py HOST:PORT HOST:PORT - does the second server answer random programs as the first does?

Runs one random program after the other against both servers, a step here, the same step there, and compares every
field of every answer, every Stat and every event. What may differ is not compared as it is: transaction ids by their
order and by which are equal, times by whether they are set, session ids by whose they are, children as sets.

At a difference it makes the program shorter while it still differs, prints both answers and the one command that
repeats it, and exits with 1. The last line is "N programs, N steps, N differences".
"""

import argparse
import bisect
import json
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "oracle"))
import plants  # noqa: E402
from program import FEATURES, USUALLY_LEFT_OUT, program  # noqa: E402
from side import STIRRING, Gone, Side  # noqa: E402
from wire import Owner, Time, Zxid  # noqa: E402

LATE_SECONDS = 0.5
GONE = "a server that is gone: this step or one before it ended it"


class Same:
    """What of the first server stands for what of the second."""

    def __init__(self, strict):
        self.strict = strict
        self.firsts = [0]
        self.seconds = [0]

    def zxids(self, first, second):
        at = bisect.bisect_left(self.firsts, first)
        if at < len(self.firsts) and self.firsts[at] == first:
            return self.seconds[at] == second
        after = at == len(self.seconds) or second < self.seconds[at]
        if not (after and (at == 0 or self.seconds[at - 1] < second)):
            return False
        self.firsts.insert(at, first)
        self.seconds.insert(at, second)
        return True

    def difference(self, first, second, sides, place=""):
        """Where two values differ, or None."""
        if isinstance(first, Zxid) and isinstance(second, Zxid):
            loose = place.endswith("zxid of the answer") and not self.strict
            return None if loose or self.zxids(first, second) else place
        if isinstance(first, Time) and isinstance(second, Time):
            return None if (first == 0) == (second == 0) else place
        if isinstance(first, Owner) and isinstance(second, Owner):
            names = [side.owners.get(owner, hex(owner)) for side, owner in zip(sides, (first, second))]
            return None if names[0] == names[1] else place
        if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
            parts = [(first[key], second[key], self.field(key)) for key in first]
        elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
            parts = [(*pair, "[%d]" % index) for index, pair in enumerate(zip(first, second))]
        else:
            return None if type(first) is type(second) and first == second else place
        for one, other, name in parts:
            found = self.difference(one, other, sides, place + name)
            if found is not None:
                return found
        return None

    def field(self, key):
        return ".zxid of the answer" if key == "zxid" else ".%s" % key


class Difference:
    def __init__(self, index, step, place, answers):
        self.index = index
        self.step = step
        self.place = place
        self.answers = answers


class Comparison:
    def __init__(self, arguments):
        self.arguments = arguments
        self.late = 0
        self.late_seconds = LATE_SECONDS
        self.steps = 0
        self.random = random.SystemRandom()

    def sides(self):
        base = "/compared-%016x" % self.random.getrandbits(64)
        sides = [Side(address, base, self.arguments.patience) for address in self.arguments.servers]
        for side in sides:
            # A server that takes seconds for an answer ends no session of the other.
            side.meanwhile = lambda: [each.beat() for each in sides]
        if self.arguments.plant:
            plants.plant(sides[1], self.arguments.plant)
        return sides

    def run(self, steps):
        """Runs a program on both servers; the first difference, or None."""
        sides = self.sides()
        same = Same(self.arguments.strict_zxids)
        try:
            for side in sides:
                if not side.begin():
                    raise SystemExit("%s: the program's first node could not be made" % side.address)
            for index, step in enumerate(steps):
                self.steps += 1
                if self.arguments.trace:
                    print(json.dumps(step), flush=True)
                try:
                    for side in sides:
                        side.keep_alive()
                    found = self.take(step, sides, same)
                except Gone as gone:
                    return Difference(index, step, GONE, [["gone"] if side.address == str(gone) else [] for side in sides])
                if found:
                    return Difference(index, step, *found)
            return None
        finally:
            for side in sides:
                self.end(side)

    def end(self, side):
        try:
            side.end()
        except Gone:
            pass  # that is known already, or the next program will meet it

    def both(self, takings):
        """Lets both servers work at the same time."""
        values = [None] * len(takings)
        going = dict(enumerate(takings))
        while going:
            for index in list(going):
                try:
                    next(going[index])
                except StopIteration as done:
                    values[index] = done.value
                    del going[index]
        return values

    def take(self, step, sides, same):
        answers = self.both([side.do(step) for side in sides])
        if step["op"] == "close":
            # A session's ephemeral nodes go in no order.
            answers = [sorted(answer, key=repr) for answer in answers]
        if self.arguments.trace:
            print("   ", json.dumps(answers, default=repr))
        place = same.difference(*answers, sides)
        if place is not None:
            return place, answers
        if step["op"] not in STIRRING:
            return None
        heard = self.both([side.hear(step["s"]) for side in sides])
        for number in set(heard[0]) & set(heard[1]):
            self.wait_for_late(number, heard, sides)
        if step["op"] in ("close", "expire", "reconnect"):
            heard = [{number: sorted(events) for number, events in one.items()} for one in heard]
        if self.arguments.trace and any(map(any, (one.values() for one in heard))):
            print("    heard", json.dumps(heard, default=repr))
        place = same.difference(*heard, sides, "what others heard")
        return None if place is None else (place, heard)

    def wait_for_late(self, number, heard, sides):
        """An event after the answer to a later read is late, but not lost. A few of these are said at the end."""
        for one, other in ((0, 1), (1, 0)):
            if len(heard[one][number]) < len(heard[other][number]):
                late = sides[one].hear_late(number, self.late_seconds)
                self.late += len(late)
                heard[one][number] += late

    def shrink(self, steps, difference):
        """A shorter program that still differs, somewhere."""
        self.late_seconds = LATE_SECONDS / 10  # most of the many programs miss the same event
        steps = steps[:difference.index + 1]
        size = max(1, len(steps) // 2)
        until = time.monotonic() + self.arguments.shrink_seconds
        while time.monotonic() < until:
            at, smaller = 0, False
            while at < len(steps) and time.monotonic() < until:
                fewer = steps[:at] + steps[at + size:]
                found = self.run(fewer) if fewer else None
                if found:
                    steps, difference, smaller = fewer[:found.index + 1], found, True
                else:
                    at += size
            if size == 1 and not smaller:
                break
            size = max(1, size // 2)
        found = self.shrink_parts(steps, difference, until)
        self.late_seconds = LATE_SECONDS
        return found

    def shrink_parts(self, steps, difference, until):
        """Takes requests out of pipelines and multiple requests."""
        again = True
        while again and time.monotonic() < until:
            again = False
            for fewer in without_a_part(steps):
                found = self.run(fewer) if time.monotonic() < until else None
                if found:
                    steps, difference, again = fewer[:found.index + 1], found, True
                    break
        return steps, difference


def without_a_part(steps):
    """The same steps, each time with one part less of one of them."""
    for index, step in enumerate(steps):
        for key in ("steps", "parts"):
            for at in range(len(step.get(key, []))):
                yield steps[:index] + [{**step, key: step[key][:at] + step[key][at + 1:]}] + steps[index + 1:]
        if step["op"] == "pipeline":
            for fewer in without_a_part(step["steps"]):
                yield steps[:index] + [{**step, "steps": fewer}] + steps[index + 1:]


def show(answer):
    return "\n".join("    " + json.dumps(part, default=repr, ensure_ascii=True)[:2000] for part in (
        answer if isinstance(answer, list) else [answer])) or "    nothing"


def say(comparison, arguments, seed, steps, difference):
    print("\nseed %d differs at step %d, at %s" % (seed, difference.index, difference.place or "its length"))
    steps = steps[:difference.index + 1]
    if difference.place != GONE:
        steps, difference = comparison.shrink(steps, difference)
    print("the shortest program found:")
    for step in steps:
        print("  " + json.dumps(step))
    print("differs at %s" % (difference.place or "its length"))
    for address, answer in zip(arguments.servers, difference.answers):
        print("  %s:\n%s" % (address, show(answer)))
    quoted = json.dumps(steps).replace("'", "'\\''")
    print("repeat it:\n  %s %s --program '%s'" % (sys.argv[0], " ".join(arguments.servers), quoted), flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs=2, metavar="HOST:PORT")
    parser.add_argument("--seed", type=int, default=1, help="of the first program; the next has the next")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seconds", type=float, help="begin no program after so long")
    parser.add_argument("--steps", type=int, default=100, help="of one program")
    parser.add_argument("--without", default=USUALLY_LEFT_OUT, help="features to leave out: " + ", ".join(FEATURES))
    parser.add_argument("--expiry", action="store_true", help="let a session of each program expire: about 10 s each")
    parser.add_argument("--strict-zxids", action="store_true", help="compare the zxid of reads and failed writes, too")
    parser.add_argument("--keep-going", type=int, default=1, metavar="N", help="stop after N differences")
    parser.add_argument("--program", help="run this program, as a difference prints it")
    parser.add_argument("--patience", type=float, default=15, help="seconds to wait for an answer")
    parser.add_argument("--shrink-seconds", type=float, default=30)
    parser.add_argument("--trace", action="store_true", help="print every step and answer")
    parser.add_argument("--plant", choices=plants.NAMES, help="spoil the second server's answers, to see that it is found")
    arguments = parser.parse_args()
    arguments.without = [name for name in arguments.without.split(",") if name]
    unknown = set(arguments.without) - set(FEATURES)
    if unknown:
        parser.error("no feature is called " + ", ".join(sorted(unknown)))
    return arguments


def main():
    arguments = parse()
    comparison = Comparison(arguments)
    began = time.monotonic()
    programs = differences = 0
    if arguments.program:
        seeds = [0]
    else:
        seeds = range(arguments.seed, arguments.seed + arguments.programs)
    steps_run = 0
    for seed in seeds:
        if arguments.seconds and time.monotonic() - began > arguments.seconds:
            break
        steps = json.loads(arguments.program) if arguments.program else program(
            seed, arguments.steps, arguments.without, arguments.expiry)
        found = comparison.run(steps)
        programs += 1
        steps_run += found.index + 1 if found else len(steps)
        if found:
            differences += 1
            say(comparison, arguments, seed, steps, found)
            if differences >= arguments.keep_going or found.place == GONE:
                break
    if comparison.late:
        print("%d events came after the answer to a later read of their session" % comparison.late)
    print("%d programs, %d steps, %d differences" % (programs, steps_run, differences))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
