"""The class scheduling application of FoundationDB's tutorial: students sign up for classes with few seats, many at once."""

import itertools
import random
import threading

import fdb

fdb.api_version(730)
db = fdb.open()
scheduling = fdb.directory.create_or_open(db, ("scheduling",))
course = scheduling["class"]
attends = scheduling["attends"]

levels = ["intro", "for dummies", "remedial", "101", "201", "301", "mastery", "lab", "seminar"]
types = ["chem", "bio", "cs", "geometry", "calc", "alg", "film", "music", "art", "dance"]
times = ["%d:00" % hour for hour in range(2, 20)]
class_names = [" ".join(parts) for parts in itertools.product(times, types, levels)]
SEATS = 20
CLASSES_A_STUDENT = 5


@fdb.transactional
def init(tr):
    del tr[scheduling.range(())]
    for name in class_names:
        tr[course.pack((name,))] = b"%d" % SEATS


@fdb.transactional
def available_classes(tr):
    return [course.unpack(k)[0] for k, v in tr.snapshot[course.range(())] if int(v)]


@fdb.transactional
def signup(tr, student, name):
    record = attends.pack((student, name))
    if tr[record].present():
        return
    seats = int(tr[course.pack((name,))])
    if not seats:
        raise ValueError("no seats are left")
    if len(list(tr[attends.range((student,))])) == CLASSES_A_STUDENT:
        raise ValueError("too many classes")
    tr[course.pack((name,))] = b"%d" % (seats - 1)
    tr[record] = b""


@fdb.transactional
def drop(tr, student, name):
    record = attends.pack((student, name))
    if not tr[record].present():
        return
    tr[course.pack((name,))] = b"%d" % (int(tr[course.pack((name,))]) + 1)
    del tr[record]


@fdb.transactional
def switch(tr, student, old, new):
    drop(tr, student, old)
    signup(tr, student, new)


def student_life(number, moves, some_classes):
    student, mine, choice = "student%d" % number, [], random.Random(number)
    for _ in range(moves):
        moods = (["drop", "switch"] if mine else []) + (["add"] if len(mine) < CLASSES_A_STUDENT else [])
        mood = choice.choice(moods)
        try:
            if mood == "add":
                name = choice.choice(some_classes)
                signup(db, student, name)
                mine = sorted(set(mine) | {name})
            elif mood == "drop":
                name = choice.choice(mine)
                drop(db, student, name)
                mine.remove(name)
            else:
                old, new = choice.choice(mine), choice.choice(some_classes)
                switch(db, student, old, new)
                mine = sorted(set(mine) - {old} | {new})
        except ValueError:
            pass


init(db)
assert len(available_classes(db)) == len(class_names)
# Few classes, so that seats run out and transactions conflict.
few = class_names[:6]
students = [threading.Thread(target=student_life, args=(i, 30, few)) for i in range(40)]
[thread.start() for thread in students]
[thread.join() for thread in students]
taken = {}
for key, _ in db[attends.range(())]:
    student, name = attends.unpack(key)
    taken.setdefault(name, set()).add(student)
for name in class_names:
    left = int(db[course.pack((name,))])
    assert left >= 0 and left + len(taken.get(name, ())) == SEATS, (name, left)
print("done")
