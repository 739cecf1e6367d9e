"""Faults put in on purpose: each spoils what comes back from one server, and the oracle has to find it."""

import types


def stats_in(values):
    for value in values:
        if isinstance(value, dict) and "cversion" in value:
            yield value
        elif isinstance(value, list):
            yield from stats_in(value)


def change_stats(change):
    def spoil(message):
        if message[0] == "reply":
            for stat in stats_in(message[2]):
                change(stat)
        return message
    return spoil


def children_version(stat):
    if stat["cversion"] > 2:
        stat["cversion"] += 1


def parent_zxid(stat):
    if stat["children"] and stat["pzxid"] > stat["czxid"]:
        stat["pzxid"] = stat["czxid"]


def owner(stat):
    if stat["owner"]:
        stat["owner"] = type(stat["owner"])(0)


def error(message):
    if message[0] == "reply" and message[1]["error"] == -111:
        message[1]["error"] = -101
    return message


def name(message):
    # The counter of a parent, once too high.
    if message[0] == "reply" and message[2] and isinstance(message[2][0], str) and message[2][0].endswith("0000000003"):
        message[2][0] = message[2][0][:-1] + "4"
    return message


def lost_event(message):
    return None if message[0] == "event" and message[1] == 4 and message[3].endswith("/a") else message


def second_event(message):
    return [message, message] if message[0] == "event" and message[1] == 2 else message


FAULTS = {
    "cversion": change_stats(children_version), "pzxid": change_stats(parent_zxid), "owner": change_stats(owner),
    "error": error, "name": name, "lost-event": lost_event, "event-twice": second_event,
}
NAMES = sorted(FAULTS)


def plant(side, fault):
    receive = side.receive

    def spoiled(self, *arguments):
        found = []
        for message in receive(*arguments):
            message = FAULTS[fault](message)
            if message is not None:
                found += message if message and isinstance(message[0], list) else [message]
        return found

    side.receive = types.MethodType(spoiled, side)
