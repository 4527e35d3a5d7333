"""Programs with one planted fault each, by the rule that should find it, and programs without any.

They are small, and their faults lie in counts, bytes and sleeps, so that a busy machine changes nothing.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import gc
import importlib
import itertools
import json
import os
import queue
import re
import sqlite3
import sys
import tempfile
import threading
import time

FAULTY: list = []
CLEAN: list = []


def faulty(rule):
    def add(function):
        FAULTY.append((rule, function))
        return function

    return add


def clean(function):
    CLEAN.append(function)
    return function


# ---- With a fault --------------------------------------------------------------------------------


def database():
    connection = sqlite3.connect(":memory:")
    connection.execute("create table item (id integer primary key, name text)")
    connection.executemany("insert into item values (?, ?)", [(n, f"item {n}") for n in range(300)])
    return connection


@faulty("n-plus-one")
def asks_for_each_row():
    connection = database()
    ids = [row[0] for row in connection.execute("select id from item")]
    names = []
    for number in ids:
        row = connection.execute("select name from item where id = ?", (number,)).fetchone()
        names.append(row[0])
    connection.close()
    return names


@faulty("commit-in-loop")
def commits_each_row():
    connection = sqlite3.connect(":memory:")
    connection.execute("create table item (id integer)")
    for number in range(400):
        connection.executemany("insert into item values (?)", [(number,)])
        connection.commit()
    connection.close()


@faulty("compile-in-loop")
def compiles_patterns_again():
    found = 0
    for number in range(600):
        pattern = re.compile(f"({number})+x[a-{chr(98 + number % 20)}]")
        found += pattern.match("no") is not None
    return found


@faulty("compile-in-loop")
def evaluates_text():
    total = 0
    for number in range(500):
        total += eval(f"{number} * 2 + 1")
    return total


@faulty("open-in-loop")
def opens_for_each_line():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "log")
        for number in range(400):
            with open(path, "a") as file:
                file.write(f"{number}\n")


@faulty("stat-in-loop")
def asks_whether_it_exists():
    there = 0
    for _ in range(3000):
        there += os.stat(os.curdir).st_size > 0
    return there


@faulty("copy-in-loop")
def copies_deep():
    settings = {"a": [1, 2, 3], "b": {"c": 4}}
    total = 0
    for number in range(300):
        own = copy.deepcopy(settings)
        own["a"].append(number)
        total += len(own["a"])
    return total


@faulty("list-from-the-front")
def inserts_at_the_front():
    rows: list = []
    for number in range(4000):
        rows.insert(0, number)
    return rows


@faulty("list-search")
def removes_from_a_list():
    rows = list(range(3000))
    for number in range(2999, -1, -1):
        rows.remove(number)
    return rows


@faulty("print-in-loop")
def prints_each_line():
    with open(os.devnull, "w") as file:
        for number in range(4000):
            print(number, file=file)


@faulty("churn")
def slices_what_is_left():
    data = bytes(60_000)
    count = 0
    while data:
        data = data[50:]
        count += 1
    return count


@faulty("churn")
def copies_to_change_one():
    row = list(range(2000))
    for number in range(5000):
        row = [*row[:-1], number]
    return row


CACHE: dict = {}


def answer(request):
    CACHE[request] = bytes(4000)
    return len(CACHE)


@faulty("growth")
def caches_without_bound():
    CACHE.clear()
    for request in range(2000):
        answer(request)


LISTENERS: list = []


class Page:
    def __init__(self, number):
        self.text = bytearray(3000)
        LISTENERS.append(self)


@faulty("growth")
def never_unsubscribes():
    LISTENERS.clear()
    for number in range(1500):
        Page(number)


@faulty("peak-holder")
def reads_all_at_once():
    data = bytearray(96 << 20)
    return len(data)


@faulty("exceptions")
def asks_forgiveness():
    def read(text):
        if not text.isdigit():
            raise ValueError(text)
        return int(text)

    def parse(text):
        try:
            return read(text)
        except ValueError:
            return None

    found = 0
    for number in range(4000):
        found += parse("no number" if number % 2 else str(number)) is not None
    return found


@faulty("gc-by-hand")
def collects_each_time():
    total = 0
    for number in range(60):
        total += number
        gc.collect()
    return total


@faulty("one-slow-call")
def one_request_waits():
    def request(number):
        if number == 30:
            time.sleep(0.6)
        return len(str(number))

    return sum(request(number) for number in range(60))


def many(count):
    return sum(len(str(number)) for number in range(count))


@faulty("one-slow-call")
def one_request_does_much():
    def request(number):
        return many(250_000 if number == 30 else 20)

    return [request(number) for number in range(60)]


@faulty("lock-waiting")
def computes_in_threads():
    def compute(until):
        count = 0
        while time.perf_counter() < until:
            count += len(str(count))
        return count

    until = time.perf_counter() + 0.8
    threads = [threading.Thread(target=compute, args=(until,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@faulty("contended-lock")
def sleeps_under_a_lock():
    lock = threading.Lock()

    def work():
        for _ in range(4):
            lock.acquire()
            try:
                time.sleep(0.03)
            finally:
                lock.release()
            time.sleep(0.005)  # else it may take the lock again before another wakes, four times

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@faulty("blocked-event-loop")
def sleeps_in_a_coroutine():
    async def handle():
        time.sleep(0.1)

    async def serve():
        await asyncio.gather(*(handle() for _ in range(3)))

    asyncio.run(serve())


# ---- With one that recorded waits show -----------------------------------------------------------

#: By rule: a program with the fault, and its twin without.
WAITING: list = []


def sends(count, size, take):
    """One thread makes items, and another takes them."""
    line = queue.Queue(maxsize=size)

    def make():
        for number in range(count):
            line.put(number)
        line.put(None)

    def use():
        while line.get() is not None:
            take()

    threads = [threading.Thread(target=work) for work in (make, use)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def waits_for_room():
    sends(15, 2, lambda: time.sleep(0.02))


def has_room():
    sends(15, 100, lambda: time.sleep(0.02))


def maps(workers, work):
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(32)))


def download(number):
    time.sleep(0.02)
    return number


def has_too_few_workers():
    maps(2, download)


def has_a_worker_for_each():
    maps(16, download)


WAITING += [
    ("full-queue", waits_for_room, has_room),
    ("small-pool", has_too_few_workers, has_a_worker_for_each),
]


# ---- Without -------------------------------------------------------------------------------------


@clean
def sorts_numbers():
    return sorted((n * 7919 % 10_007 for n in range(20_000)), key=lambda n: -n)[:3]


@clean
def counts_words():
    words: dict = {}
    for word in ("one two three four " * 2000).split():
        words[word] = words.get(word, 0) + 1
    return words


@clean
def reads_json():
    text = json.dumps([{"id": n, "name": f"name {n}"} for n in range(3000)])
    return len(json.loads(text))


@clean
def opens_a_file_in_each_call():
    def first_line(path):
        # The buffer that every file has from CPython 3.14 on.
        with open(path, "rb", buffering=128 << 10) as file:
            return file.readline()

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows")
        with open(path, "w") as file:
            file.write("row\n")
        return [first_line(path) for _ in range(600)][-1]


@clean
def inserts_many():
    connection = database()
    rows = connection.execute("select count(*) from item").fetchall()
    connection.commit()
    connection.close()
    return rows


@clean
def searches_a_pattern():
    pattern = re.compile("[a-z]+([0-9]+)")
    return sum(pattern.search(f"name{n}") is not None for n in range(5000))


@clean
def walks_a_tree():
    def make(depth):
        return (make(depth - 1), make(depth - 1)) if depth else None

    def size(tree):
        return 1 if tree is None else 1 + size(tree[0]) + size(tree[1])

    return size(make(11))


@clean
def computes_fibonacci():
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return fib(17)


@clean
def joins_text():
    return len("".join(str(n) for n in range(20_000)))


@clean
def writes_one_file():
    with tempfile.TemporaryFile("w") as file:
        file.writelines(f"{n}\n" for n in range(5000))


@clean
def generates_pairs():
    return sum(a * b for a, b in itertools.combinations(range(150), 2))


@clean
def builds_classes():
    class Point:
        def __init__(self, x, y):
            self.x, self.y = x, y

        def length(self):
            return (self.x**2 + self.y**2) ** 0.5

    return sum(Point(n, n + 1).length() for n in range(4000))


@clean
def handles_few_errors():
    failed = 0
    for n in range(3000):
        try:
            failed += int("x" if n % 100 == 0 else "5") < 0
        except ValueError:
            failed += 1
    return failed


@clean
def hands_over_in_a_queue():
    items: queue.Queue = queue.Queue()
    done = []

    def consume():
        while (item := items.get()) is not None:
            done.append(item)

    thread = threading.Thread(target=consume)
    thread.start()
    for n in range(300):
        items.put(n)
    items.put(None)
    thread.join()
    return done


@clean
def sleeps_in_threads():
    threads = [threading.Thread(target=time.sleep, args=(0.15,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@clean
def locks_briefly():
    lock = threading.Lock()
    total = [0]

    def add():
        for _ in range(300):
            with lock:
                total[0] += 1

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return total


@clean
def awaits():
    async def handle(number):
        await asyncio.sleep(0.01)
        return number

    async def serve():
        return await asyncio.gather(*(handle(n) for n in range(20)))

    return asyncio.run(serve())


@clean
def fills_a_table():
    table = [[row * column for column in range(60)] for row in range(200)]
    return sum(map(sum, table))


@clean
def uses_a_bounded_cache():
    import functools

    @functools.lru_cache(maxsize=64)
    def work(n):
        return bytes(n % 500)

    return sum(len(work(n % 100)) for n in range(5000))


@clean
def parses_dates():
    import datetime

    return [datetime.date(2000 + n % 30, 1 + n % 12, 1 + n % 28).isoformat() for n in range(3000)]


@clean
def compares_texts():
    import difflib

    return difflib.SequenceMatcher(None, "some text " * 20, "same test " * 20).ratio()


for needed in ("datetime", "difflib", "functools", "encodings.idna"):
    importlib.import_module(needed)
asyncio.run(asyncio.sleep(0))  # so that what runs imports nothing
assert sys.version_info
