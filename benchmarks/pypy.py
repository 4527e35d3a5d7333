"""What recording costs on PyPy: pypy3 benchmarks/pypy.py [REPETITIONS].

Each row is a program under: no hook; an empty sys.setprofile hook; one that reads the clock and
keeps nothing; eventprof. Each is measured in a process of its own, because compiled code depends on
the hook; processor time, the least of all repetitions, in turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

EVENTS = ("none", "empty", "clock", "eventprof")


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


class Node:
    def __init__(self, value):
        self.value = value
        self.below = []

    def add(self, node):
        self.below.append(node)
        return node

    def total(self):
        return self.value + sum([node.total() for node in self.below])


def objects():
    for _ in range(300):
        top = Node(1)
        for value in range(40):
            node = top.add(Node(value))
            for small in range(3):
                node.add(Node(small))
        top.total()


numbers = [3, 1, 2]


def builtins():
    for i in range(60_000):
        len(numbers)
        abs(i)
        numbers.append(i)
        numbers.pop()


def lines():
    text = "some words, and some more of them " * 20
    counts = {}
    for _ in range(300):
        for word in text.split():
            counts[word] = counts.get(word, 0) + len(word.strip(",").upper())


PROGRAMS = {"recursion": lambda: fib(24), "objects": objects, "builtins": builtins, "words": lines}


def empty(frame, event, arg):
    pass


def child(program, what):
    import eventprof
    from eventprof._pypy import log

    read = log.clock("auto").read

    def clock(frame, event, arg):
        read()

    work, best = PROGRAMS[program], None
    for _ in range(25):
        recorder = eventprof.record(jit=False, gc=False, buffer="16 MiB")
        begin = time.process_time()
        if what == "eventprof":
            recorder.start()
        elif what != "none":
            sys.setprofile({"empty": empty, "clock": clock}[what])
        work()
        if what == "eventprof":
            recorder.stop()
        else:
            sys.setprofile(None)
        took = time.process_time() - begin
        best = took if best is None else min(best, took)
    print(json.dumps(best))


def main():
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"{'program':10} {'none':>9} {'empty':>9} {'clock':>9} {'eventprof':>9}   "
          "eventprof / empty, / clock")  # fmt: skip
    for program in PROGRAMS:
        best = dict.fromkeys(EVENTS, float("inf"))
        for _ in range(repetitions):
            for what in EVENTS:
                output = subprocess.run(
                    [sys.executable, __file__, "child", program, what],
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
                best[what] = min(best[what], json.loads(output.stdout))
        cells = " ".join(f"{best[what] * 1e3:>6.2f} ms" for what in EVENTS)
        print(f"{program:10} {cells}   {best['eventprof'] / best['empty']:.2f}x, "
              f"{best['eventprof'] / best['clock']:.2f}x", flush=True)  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(*sys.argv[2:])
    else:
        main()
