"""What C libraries allocate: domain libc, through the shim that is preloaded."""

from __future__ import annotations

import ast
import json
import os
import sys
import sysconfig
import textwrap
from pathlib import Path

import children
import numpy as np
import pytest
from preloading import HAS_LIBRARY, SANITIZED, WITH_HELPERS

import eventprof
from eventprof import _core
from eventprof.recording import native

pytestmark = [
    pytest.mark.version,
    pytest.mark.skipif(not HAS_LIBRARY, reason="needs Linux with glibc"),
    pytest.mark.skipif(SANITIZED, reason="the sanitizer is the allocator"),
]

# Free-threaded builds have mimalloc inside, which maps its pages itself.
OWN_ALLOCATOR = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
asks_the_c_library = pytest.mark.skipif(
    OWN_ALLOCATOR, reason="this Python does not ask the C library for objects"
)

HERE = Path(__file__).parent
SIZE, PAGE = 12347, 4096


def in_child(code, preload=True, **more):
    """Run code after native_child.py in a process of its own; give what it printed, as JSON."""
    more = WITH_HELPERS | more
    if preload:
        more["LD_PRELOAD"] = native.library()
    found = children.run(
        sys.executable, HERE / "native_child.py", stdin=textwrap.dedent(code), **more
    )
    return json.loads(found.stdout)


def run(folder, *arguments, script=None, status=0, **more):
    if script is not None:
        (folder / "script.py").write_text(textwrap.dedent(script))
    more = WITH_HELPERS | more
    return children.eventprof("run", *arguments, status=status, cwd=folder, **more)


def libc_blocks(path):
    blocks = eventprof.open(path).allocations
    return blocks[blocks["domain"] == "libc"]


# ---- Each function -------------------------------------------------------------------------------


def test_every_function_is_what_it_says():
    """Of a known pattern; an independent witness of the words and the sizes is the code itself."""
    found = in_child("""
        text = ctypes.create_string_buffer(b"x" * SIZE)
        with recorder() as rec:
            a = libc.malloc(size_t(SIZE))
            b = libc.calloc(size_t(3), size_t(SIZE))
            a = libc.realloc(pointer(a), size_t(2 * SIZE))
            b = libc.reallocarray(pointer(b), size_t(2), size_t(2 * SIZE))
            libc.free(a)
            libc.free(b)
            c = pointer()
            libc.posix_memalign(ctypes.byref(c), size_t(4096), size_t(5 * SIZE))
            d = libc.aligned_alloc(size_t(64), size_t(64 * SIZE))
            e = libc.memalign(size_t(64), size_t(7 * SIZE))
            f = libc.realloc(None, size_t(8 * SIZE))
            for each in (c, d, e, f):
                libc.free(each)
            libc.free(libc.strdup(text))
        print(json.dumps(large(rec.trace)))
    """)
    sizes = [5 * SIZE, 64 * SIZE, 7 * SIZE, 8 * SIZE]

    assert found == [
        ["malloc", SIZE],
        ["calloc", 3 * SIZE],
        ["realloc_free", SIZE],
        ["realloc", 2 * SIZE],
        ["realloc_free", 3 * SIZE],
        ["realloc", 4 * SIZE],
        ["free", 2 * SIZE],
        ["free", 4 * SIZE],
        *[["malloc", size] for size in sizes],
        *[["free", size] for size in sizes],
        ["malloc", SIZE + 1],
        ["free", SIZE + 1],
    ]


def test_failures_leave_what_there_was():
    found = in_child("""
        with recorder() as rec:
            a = libc.malloc(size_t(SIZE))
            assert libc.realloc(pointer(a), size_t(2**62)) is None
            assert libc.malloc(size_t(2**62)) is None
            assert libc.calloc(size_t(2**40), size_t(2**40)) is None
            assert libc.reallocarray(pointer(a), size_t(2**40), size_t(2**40)) is None
            libc.free(a)
            libc.free(None)
            b = libc.malloc(size_t(3 * SIZE))
            libc.realloc(pointer(b), size_t(0))    # frees, in the GNU library
        print(json.dumps(large(rec.trace)))
    """)

    assert found == [
        ["malloc", SIZE],
        ["realloc_free", SIZE],
        ["realloc_failed", 2**62],
        ["free", SIZE],
        ["malloc", 3 * SIZE],
        ["free", 3 * SIZE],
    ]


def test_pages():
    """Whole mappings, parts of them, several at once, moved ones; no files, no mere addresses."""
    found = in_child("""
        READ_WRITE, PRIVATE, FIXED = 3, 0x22, 0x10
        def map(pages, at=None, flags=0, protection=READ_WRITE, file=-1):
            kind = PRIVATE if file < 0 else 2
            return libc.mmap(pointer(at), size_t(pages * PAGE), protection, kind | flags, file,
                             ctypes.c_long(0))
        def unmap(at, pages):
            libc.munmap(pointer(at), size_t(pages * PAGE))
        with open(sys.executable, "rb") as file, recorder() as rec:
            a = map(8)
            unmap(a + 2 * PAGE, 1)            # in the middle
            unmap(a, 8)                       # both that are left
            b = map(8)
            map(2, at=b + 6 * PAGE, flags=FIXED)    # in place of its end
            unmap(b, 8)
            c = map(9)
            d = libc.mremap(pointer(c), size_t(9 * PAGE), size_t(20 * PAGE), 1)
            unmap(d, 20)
            e = map(5, protection=0)
            f = map(5, file=file.fileno(), protection=1)
            g = map(1 << 18, flags=0x4000)    # MAP_NORESERVE: 1 GiB of addresses
            unmap(e, 5)
            unmap(f, 5)
            unmap(g, 1 << 18)
            assert libc.munmap(pointer(1), size_t(PAGE)) == -1
        print(json.dumps([row for row in rows(rec.trace) if row[1] and row[1] % PAGE == 0]))
    """)
    found = [[word, size // PAGE] for word, size in found]

    assert found == [
        ["calloc", 8],
        ["realloc_free", 8],
        ["realloc", 2],
        ["calloc", 5],
        ["free", 2],
        ["free", 5],
        ["calloc", 8],
        ["realloc_free", 8],
        ["realloc", 6],
        ["calloc", 2],
        ["free", 6],
        ["free", 2],
        ["calloc", 9],
        ["realloc_free", 9],
        ["realloc", 20],
        ["free", 20],
    ]


# ---- Whose they are ------------------------------------------------------------------------------


def test_a_block_has_the_line_of_the_call_that_was_open():
    """With the interpreter held; a thread that gave it up is nowhere in Python."""
    found = in_child("""
        def with_it():
            libc.free(libc.malloc(size_t(SIZE)))

        def without():
            free_libc.free(free_libc.malloc(size_t(3 * SIZE)))

        with recorder() as rec:
            with_it()
            without()
        blocks = rec.trace.allocations
        blocks = blocks[(blocks["size"] == SIZE) | (blocks["size"] == 3 * SIZE)]
        print(json.dumps([[str(name) for name in blocks["name"]], rec.trace.verify().ok,
                          with_it.__code__.co_firstlineno,
                          [int(line) for line in blocks["line"].tolist() if line]]))
    """)

    assert found[0][0] == "with_it"
    assert found[0][1:] != ["without"]
    assert found[1]
    assert found[3] == [found[2] + 1]


@asks_the_c_library
def test_blocks_of_pythons_allocators_are_not_counted_twice():
    """Nor the pages of their arenas; and what is not recorded as theirs is the C library's."""
    found = in_child("""
        def work():
            return [[bytes(5000) for _ in range(300)], [(i, str(i)) for i in range(60000)]]
        with recorder(memory=True) as both:
            kept = work()
        del kept
        with recorder() as alone:
            kept = work()
        def sums(trace):
            blocks = trace.allocations
            return {domain: sum(blocks["size"][blocks["domain"] == domain].tolist())
                    for domain in ("raw", "obj", "libc")}
        print(json.dumps([sums(both.trace), sums(alone.trace), both.trace.verify().ok]))
    """)
    both, alone, ok = found

    assert ok
    assert both["obj"] > 1_500_000 > 100_000 > both["libc"]
    assert alone["obj"] == alone["raw"] == 0
    assert alone["libc"] > 1_500_000


@asks_the_c_library
def test_a_counter_beside_it_hides_nothing():
    """Its hooks stand between Python's allocators and the C library, and record nothing there."""
    found = in_child("""
        import eventprof
        def work():
            return [bytearray(SIZE + i) for i in range(100)]
        def blocks(with_counter):
            counter = eventprof.count(memory=["raw", "mem", "obj"])
            if with_counter:
                counter.start()
            with recorder() as rec:
                kept = work()
            if with_counter:
                counter.stop()
            return [len([size for _, size in large(rec.trace) if size < 2 * SIZE]),
                    counter.get_call_counts().get("work", 0) if with_counter else 1]
        blocks(True), blocks(False)
        print(json.dumps([blocks(False), blocks(True)]))
    """)

    assert found[0][0] >= 100
    assert found == [found[0], found[0]]


# What the C library itself says was asked of it, in bytes that are in use. Without its caches of freed
# blocks, which it counts as in use.
IN_USE = """
    class Info(ctypes.Structure):
        _fields_ = [(name, size_t) for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost")]
    libc.mallinfo2.restype = Info
    libc.malloc_usable_size.argtypes = [pointer]
    libc.malloc_usable_size.restype = size_t
    def in_use():
        info = libc.mallinfo2()
        return info.uordblks + info.hblkhd
    # With its own 8 bytes a block, and what each is rounded up to.
    def known(trace):
        import numpy as np
        blocks = trace.allocations
        alive = blocks["address"][np.ma.getmaskarray(blocks["end"])]
        return sum(libc.malloc_usable_size(pointer(address)) + 8 for address in alive.tolist())
"""


@pytest.mark.newest
@pytest.mark.thorough
@asks_the_c_library
@pytest.mark.parametrize(
    "work",
    [
        "import sqlite3; db = sqlite3.connect(':memory:'); "
        "db.execute('create table t (a, b)'); "
        "db.executemany('insert into t values (?, ?)', ((i, 'x' * 100) for i in range(50000)))",
        "import zlib; many = [zlib.compressobj() for _ in range(30)]; "
        "[each.compress(bytes(10000)) for each in many]",
        "import json; kept = json.loads(json.dumps([{str(i): [i] * 30} for i in range(20000)]))",
    ],
    ids=["sqlite3", "zlib", "json"],
)
def test_live_bytes_are_those_that_the_c_library_has(work):
    found = in_child(
        IN_USE
        + f"""
    def do():
        {work}
        return locals()
    do()
    with recorder(buffer="256 MiB") as rec:
        before = in_use()
        kept = do()
        after = in_use()
    print(json.dumps([after - before, known(rec.trace), rec.trace.verify().ok]))
    """,
        GLIBC_TUNABLES="glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0",
        PYTHONMALLOC="malloc",
    )
    in_use, live, ok = found

    assert ok
    assert live > 1_000_000
    # What was freed of before, and what the recorder itself has.
    assert 0.98 * in_use < live < 1.02 * in_use


def test_our_own_memory_is_not_the_programs():
    found = in_child("""
        with recorder() as rec:
            with recorder(memory=True) as inner:
                for i in range(200000):
                    bytes(600)
            blocks = inner.trace.allocations
            total = sum(blocks["size"].tolist())
            del inner, blocks
        print(json.dumps([total, max(row[1] or 0 for row in rows(rec.trace))]))
    """)

    assert found[0] > 100_000_000
    assert found[1] < 20_000_000


# ---- Threads, forks ------------------------------------------------------------------------------


THREAD = """
    def c_thread(routine, argument):
        thread = pointer()
        address = ctypes.cast(routine, pointer).value
        assert free_libc.pthread_create(ctypes.byref(thread), None, pointer(address),
                                        pointer(argument)) == 0
        result = pointer()
        assert free_libc.pthread_join(thread, ctypes.byref(result)) == 0
        return result.value
"""


def test_a_thread_that_python_does_not_know():
    """Its routine is malloc() itself; and one from before the recording, by a Python thread."""
    found = in_child(
        THREAD
        + """
    import threading
    go = threading.Event()
    def early():
        go.wait(60)
        free_libc.free(free_libc.malloc(size_t(3 * SIZE)))
    thread = threading.Thread(target=early)
    thread.start()
    with recorder() as rec:
        block = c_thread(free_libc.malloc, SIZE)
        go.set()
        thread.join()
        libc.free(block)
    blocks = rec.trace.allocations
    blocks = blocks[blocks["size"] >= SIZE]
    print(json.dumps([large(rec.trace), len(set(blocks["thread"].tolist())),
                      rec.trace.verify().ok]))
    """
    )
    events, threads, ok = found

    assert ok
    assert sorted(row for row in events if row[1] in (SIZE, 3 * SIZE)) == sorted(
        [["malloc", SIZE], ["malloc", 3 * SIZE], ["free", 3 * SIZE], ["free", SIZE]]
    )
    assert threads >= 2


def test_destructors_of_a_thread():
    """free() as the destructor of a thread's value: after all that the thread itself does."""
    found = in_child(
        THREAD
        + """
    import threading
    key = ctypes.c_uint()
    assert libc.pthread_key_create(ctypes.byref(key), ctypes.cast(libc.free, pointer)) == 0
    def work():
        libc.pthread_setspecific(key, pointer(libc.malloc(size_t(SIZE))))
    with recorder() as rec:
        threads = [threading.Thread(target=work) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        c_thread(free_libc.malloc, 5 * SIZE)    # joins by the system: the others are over, or nearly
        import time
        end = time.monotonic() + 60
        while (sum(word == "free" and size == SIZE for word, size in rows(rec.snapshot())) < 20
               and time.monotonic() < end):
            time.sleep(0.01)
    trace = rec.trace
    found = [sum(row == [word, SIZE] for row in rows(trace)) for word in ("malloc", "free")]
    print(json.dumps([found, trace.verify().ok]))
    """
    )

    assert found[0] == [20, 20]


def test_forked_children_have_files_of_their_own(tmp_path):
    run(
        tmp_path,
        "--native",
        "-o",
        "out-%p.epr",
        "script.py",
        script="""
            import ctypes, os
            libc = ctypes.PyDLL(None)
            libc.malloc.restype = ctypes.c_void_p
            keep = libc.malloc(ctypes.c_size_t(12347))
            child = os.fork()
            if child == 0:
                keep = libc.malloc(ctypes.c_size_t(3 * 12347))
            else:
                assert os.waitpid(child, 0)[1] == 0
        """,
    )
    found = [
        sorted(size for size in libc_blocks(path)["size"].tolist() if size in (SIZE, 3 * SIZE))
        for path in tmp_path.glob("out-*.epr")
    ]

    assert sorted(found) == [[SIZE], [3 * SIZE]]
    assert all(eventprof.open(path).verify().ok for path in tmp_path.glob("out-*.epr"))


# ---- The command line ----------------------------------------------------------------------------


SCRIPT = """
    import ctypes, os, subprocess, sys
    libc = ctypes.PyDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    block = libc.malloc(ctypes.c_size_t(12347))
    named = [name for name in ("LD_PRELOAD", "EVENTPROF_PRELOADED") if name in os.environ]
    child = subprocess.run(
        [sys.executable, "-c",
         "import os; print('LD_PRELOAD' in os.environ, '_shim' in open('/proc/self/maps').read())"],
        capture_output=True, text=True, check=True)
    print([sys.argv[1:], named, child.stdout.split(), sys.stdin.read()])
"""


def test_run_native(tmp_path):
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    env = os.environ | WITH_HELPERS
    env.pop("LD_PRELOAD", None)
    found = children.eventprof(
        "run", "--native", "-o", "out.epr", "script.py", "a", "-b",
        cwd=tmp_path, stdin="given", environment=env,
    )  # fmt: skip

    # Nothing of it is left for the programs that it starts.
    assert ast.literal_eval(found.stdout) == [["a", "-b"], [], ["False", "False"], "given"]
    assert SIZE in libc_blocks(tmp_path / "out.epr")["size"].tolist()


def test_run_native_follows_into_other_programs(tmp_path):
    # As if it were installed.
    (tmp_path / "sitecustomize.py").write_text(
        (HERE.parents[2] / "python/eventprof.pth").read_text()
    )
    found = run(
        tmp_path,
        "--native",
        "--follow-exec",
        "-o",
        "out-%p.epr",
        "script.py",
        script=SCRIPT,
        PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}",
    )
    files = list(tmp_path.glob("out-*.epr"))

    assert ast.literal_eval(found.stdout)[2] == ["True", "True"]
    assert len(files) == 2
    assert all(len(libc_blocks(path)) > 0 for path in files)


def test_what_was_preloaded_stays(tmp_path):
    other = tmp_path / "other.so"
    other.write_bytes(b"")
    found = run(
        tmp_path,
        "--native",
        "-o",
        "out.epr",
        "-c",
        "import os; print(os.environ['LD_PRELOAD'])",
        LD_PRELOAD=str(other),
    )

    assert found.stdout.strip() == str(other)


def find_jemalloc():
    for folder in ("/usr/lib", "/usr/lib64", "/usr/local/lib"):
        for found in (
            *Path(folder).glob("libjemalloc.so.2"),
            *Path(folder).glob("*/libjemalloc.so.2"),
        ):
            return str(found)
    return None


def test_another_allocator_that_is_preloaded_is_called(tmp_path):
    """With jemalloc below: all blocks are seen, and are jemalloc's, as it says itself."""
    jemalloc = find_jemalloc()
    if jemalloc is None:
        pytest.skip("jemalloc is not installed")
    script = f"""
        import ctypes
        libc = ctypes.PyDLL(None)
        libc.malloc.restype = libc.aligned_alloc.restype = ctypes.c_void_p
        size_t, pointer = ctypes.c_size_t, ctypes.c_void_p
        def allocated():
            now, epoch = size_t(), ctypes.c_uint64(1)
            libc.mallctl(b"epoch", None, None, ctypes.byref(epoch), size_t(8))
            libc.mallctl(b"stats.allocated", ctypes.byref(now), ctypes.byref(size_t(8)), None, size_t(0))
            return now.value
        before = allocated()
        kept = [libc.malloc(size_t({SIZE})) for _ in range(100)]
        kept.append(libc.aligned_alloc(size_t(64), size_t(64 * 999)))
        print(allocated() - before)
        for each in kept[:50]:
            libc.free(pointer(each))
    """

    found = run(
        tmp_path, "--native", "-o", "out.epr", "script.py", script=script, LD_PRELOAD=jemalloc
    )

    assert int(found.stdout) >= 100 * SIZE + 64 * 999
    blocks = libc_blocks(tmp_path / "out.epr")
    ours = blocks[blocks["size"] == SIZE]
    assert len(ours) == 100
    assert np.ma.getmaskarray(ours["end"]).sum() == 50
    assert (blocks["size"] == 64 * 999).sum() == 1


def test_an_exit_status_passes(tmp_path):
    found = run(tmp_path, "--native", "-o", "out.epr", "-c", "raise SystemExit(7)", status=7)

    assert found.returncode == 7


def test_without_the_shim_the_error_says_what_to_do():
    if _core.native_available():
        pytest.skip("these tests run with it")
    with pytest.raises(eventprof.UnsupportedError, match="eventprof run --native"):
        eventprof.record(native=True)
    with pytest.raises(TypeError, match="native must be True or False"):
        eventprof.record(native="yes")


def test_a_loader_that_does_not_load_it_is_said(tmp_path):
    """As for a statically linked interpreter: the second beginning finds the library missing."""
    found = run(
        tmp_path, "--native", "-o", "out.epr", "-c", "pass", status=None, EVENTPROF_PRELOADED=""
    )

    assert found.returncode == 2
    assert "did not load" in found.stderr


# ---- Tables and files ----------------------------------------------------------------------------


def test_tables_and_files_have_the_domain(tmp_path):
    found = in_child(f"""
        import eventprof
        with recorder(memory=True, calls=True) as rec:
            kept = libc.malloc(size_t(SIZE))
        rec.trace.save({str(tmp_path / "a.epr")!r})
        found = []
        for trace in (rec.trace, eventprof.open({str(tmp_path / "a.epr")!r})):
            live = int(trace.memory_of(["libc"])["live"].max())
            found.append([large(trace), live >= SIZE, trace.verify().ok,
                          "libc" in trace.metadata["options"]["domains"]])
        print(json.dumps(found))
    """)

    assert found[0] == found[1]
    assert found[0][1:] == [True, True, True]
    assert ["malloc", SIZE] in found[0][0]
