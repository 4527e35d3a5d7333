"""What is watched in test_coexistence.py: a part with functions of its own for each step between starts and stops.

In a file of its own, on which no tool's lines and calls of the test itself fall.
"""

import sys
import threading

KEPT = []
PARTS = 5


def leaf(value):
    return abs(value)


def generate(count):
    for value in range(count):
        yield leaf(-value)


def fail():
    raise KeyError("of the program")


def recurse(depth):
    return depth and 1 + recurse(depth - 1)


def in_thread(part):
    return leaf(-part)


def body(part):
    total = sum(generate(3)) + recurse(4)
    try:
        fail()
    except KeyError:
        total += len("three")
    return total


# One function a part: what a tool has seen says when it was on.
def part_0():
    KEPT.append(bytes(12345))
    return body(0)


def part_1():
    KEPT.append(bytes(22345))
    return body(1)


def part_2():
    KEPT.append(bytes(32345))
    return body(2)


def part_3():
    KEPT.append(bytes(42345))
    return body(3)


def part_4():
    KEPT.append(bytes(52345))
    return body(4)


def thread_0():
    return in_thread(0)


def thread_1():
    return in_thread(1)


def thread_2():
    return in_thread(2)


def thread_3():
    return in_thread(3)


def thread_4():
    return in_thread(4)


def run(part):
    globals()[f"part_{part}"]()
    thread = threading.Thread(target=globals()[f"thread_{part}"])
    thread.start()
    thread.join()


def size_of(part):
    """What a part's block takes, header and final zero included."""
    return 10_000 * part + 12345 + sys.getsizeof(b"")
