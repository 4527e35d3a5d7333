"""Where a log is written: paths, rights, links, and no room."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import stat

import children
import pytest
from log_children import assert_same, leaf, names_called, run_to_end, work

import eventprof

pytestmark = pytest.mark.usefixtures("restored")


# ---- Paths ---------------------------------------------------------------------------------------


def test_a_file_that_is_there_is_not_touched_without_force(tmp_path):
    path = tmp_path / "a.epr"
    path.write_bytes(b"precious")
    rec = eventprof.record(output=path)

    with pytest.raises(FileExistsError, match=r"force=True.*a\.epr"):
        rec.start()

    assert path.read_bytes() == b"precious"
    assert rec.state == "new"
    forced = eventprof.record(output=path, force=True)
    with forced:
        work(1)
    assert_same(eventprof.open(path), forced.trace)


def test_force_leaves_those_alone_who_have_the_old_file_open(tmp_path):
    path = tmp_path / "a.epr"
    with eventprof.record(output=path) as first:
        work(10)
    with eventprof.record(output=path, force=True) as second:
        work(20)

    assert names_called(first.trace).count("leaf") == 10
    assert_same(eventprof.open(path), second.trace)


def test_started_again_it_replaces_its_own_file(tmp_path):
    rec = eventprof.record(output=tmp_path / "a.epr")
    with rec:
        work(10)
    with rec:
        leaf(1)

    assert_same(eventprof.open(rec.output), rec.trace)
    assert os.listdir(tmp_path) == ["a.epr"]


@pytest.mark.parametrize("where", ["folder", "missing/a.epr", "file/a.epr"])
def test_where_no_file_can_be(where, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    rec = eventprof.record(output=tmp_path / where, force=True)

    with pytest.raises(OSError) as info:
        rec.start()

    assert info.value.filename == str(tmp_path / where)
    assert info.value.errno
    assert rec.state == "new"
    assert (tmp_path / "folder").is_dir()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_rights(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)

    with pytest.raises(PermissionError):
        eventprof.record(output=folder / "a.epr").start()


def test_patterns(tmp_path):
    rec = eventprof.record(output=tmp_path / "%h-%p-%%.epr")
    with rec:
        work(1)

    assert rec.output == str(tmp_path / f"{os.uname().nodename}-{os.getpid()}-%.epr")
    assert_same(eventprof.open(rec.output), rec.trace)
    for wrong in ("%q.epr", "a%"):
        with pytest.raises(ValueError, match="%p, %h, %u and %%"):
            eventprof.record(output=wrong)


def test_a_relative_path_is_one_of_where_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    rec = eventprof.record(output="a.epr")
    os.chdir("elsewhere")
    with rec:
        work(1)

    assert rec.output == str(tmp_path / "a.epr")
    assert os.path.exists(rec.output)


@pytest.mark.thorough
@pytest.mark.parametrize("order", ["inside", "overlapping"])
def test_several_files_at_once(order, tmp_path):
    first, second, third = (eventprof.record(output=tmp_path / f"{name}.epr") for name in "abc")
    first.start()
    work(10)
    second.start()
    work(30_000)  # more than one chunk
    third.start()
    work(20)
    for rec in (third, second, first) if order == "inside" else (first, second, third):
        rec.stop()
        work(3)

    calls = []
    for rec in (first, second, third):
        file = eventprof.open(rec.output)
        assert not file.loss and not file.file["missing"] and not file.file["unfinished"]
        assert_same(file, rec.trace)
        assert file.verify().ok
        calls.append(names_called(file).count("leaf"))
    inside = [30_036, 30_023, 20] if order == "inside" else [30_030, 30_023, 26]
    assert calls == inside

    with second:  # once more, with nothing beside it: it streams
        work(3)
    assert_same(eventprof.open(second.output), second.trace)


def test_a_file_that_is_recorded_into_is_not_replaced(tmp_path):
    first = eventprof.record(output=tmp_path / "a.epr")
    same_path = eventprof.record(output=tmp_path / "a.epr", force=True)
    with first:
        work(10)
        with pytest.raises(
            eventprof.StateError, match=r"another recorder records into .*a\.epr.*another name"
        ):
            same_path.start()

    assert_same(eventprof.open(first.output), first.trace)


def test_a_second_file_of_a_forked_child(tmp_path):
    code = """
        import eventprof, os, sys
        def leaf(n):
            return n
        os.chdir(sys.argv[1])
        with eventprof.record(output="outer.epr"):
            with eventprof.record(output="inner.epr") as inner:
                leaf(1)
                child = os.fork()
                for n in range(5 if child else 7):
                    leaf(n)
            if child == 0:
                sys.exit(0 if inner.output.endswith(f"inner-{os.getpid()}.epr") else 3)
            sys.exit(os.waitpid(child, 0)[1])
    """
    status, _ = run_to_end(code, tmp_path)

    assert status == 0
    child = next(tmp_path.glob("inner-*.epr"))
    for path, count in ((tmp_path / "inner.epr", 6), (child, 7)):
        trace = eventprof.open(path)
        assert names_called(trace).count("leaf") == count
        assert not trace.loss and not trace.file["unfinished"]


def test_recorders_of_memory_beside_it(tmp_path):
    with eventprof.record() as around:
        with eventprof.record(output=tmp_path / "a.epr") as rec, eventprof.record() as inside:
            work(1000)
        work(10)

    assert_same(eventprof.open(rec.output), rec.trace)
    calls = [sum(str(e) == "call" for e in r.trace.events["event"]) for r in (around, rec, inside)]
    assert calls[0] >= calls[1] >= calls[2] >= 1001


def test_no_descriptor_is_left(tmp_path):
    before = os.listdir("/proc/self/fd")
    for i in range(3):
        with eventprof.record(output=tmp_path / f"{i}.epr") as rec:
            work(10)
        trace = eventprof.open(rec.output)
        len(trace.events)
        del trace
    with pytest.raises(FileNotFoundError):
        eventprof.record(output=tmp_path / "no" / "b.epr").start()
    (tmp_path / "bad").write_bytes(b"bad")
    for _ in range(3):
        with pytest.raises(eventprof.FormatError):
            eventprof.open(tmp_path / "bad")
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == len(before)


# ---- No room -------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("on_full", ["overwrite", "stop", "grow"])
def test_a_limit_of_the_system(on_full, tmp_path):
    code = """
        import resource, sys, eventprof
        def leaf(n): return n
        resource.setrlimit(resource.RLIMIT_FSIZE, (7 << 20, resource.RLIM_INFINITY))
        rec = eventprof.record(output=sys.argv[1], on_full=sys.argv[2], memory=False, c_calls=False)
        with rec:
            for i in range(600000): leaf(i)
        called = sum(str(e) == "call" for e in rec.trace.events["event"])
        print(called, rec.trace.loss.by_kind.get("call", 0))
    """
    status, out = run_to_end(code, tmp_path / "a.epr", on_full)
    assert status == 0
    called, lost = map(int, out.split())
    assert called + lost == 600000
    assert lost > 0

    trace = eventprof.open(tmp_path / "a.epr")

    assert sum(str(e) == "call" for e in trace.events["event"]) == called
    assert trace.loss.by_kind["call"] == lost
    assert os.path.getsize(tmp_path / "a.epr") <= 7 << 20


def test_no_room_for_a_file_at_all(tmp_path):
    code = """
        import os, resource, sys, eventprof
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, resource.RLIM_INFINITY))
        rec = eventprof.record(output=sys.argv[1])
        try:
            rec.start()
        except OSError as error:
            print(error.errno, rec.state, os.path.exists(sys.argv[1]))
    """
    assert run_to_end(code, tmp_path / "a.epr") == (0, b"27 new False\n")


@pytest.fixture
def tiny_disk(tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = shutil.which("mount")
    disk = ["-t", "tmpfs", "-o", "size=6m", "none", folder]
    if mount is None or children.run(mount, *disk, status=None).returncode != 0:
        pytest.skip("may not mount a small disk")
    yield folder
    children.run("umount", "-l", folder)


@pytest.mark.thorough
@pytest.mark.parametrize("on_full", ["overwrite", "stop", "grow"])
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_full_disk(on_full, how, tiny_disk):
    code = """
        import os, sys, eventprof
        def leaf(n): return n
        rec = eventprof.record(output=sys.argv[1], on_full=sys.argv[2], memory=False, c_calls=False)
        rec.start()
        for i in range(600000): leaf(i)
        if sys.argv[3] == "kill": os.kill(os.getpid(), 9)
        rec.stop()
    """
    status, _ = run_to_end(code, tiny_disk / "a.epr", on_full, how)
    assert status == (0 if how == "stop" else -signal.SIGKILL)

    trace = eventprof.open(tiny_disk / "a.epr")

    called = sum(str(e) == "call" for e in trace.events["event"])
    assert called > 60000
    if how == "stop" or on_full == "overwrite":
        assert called + trace.loss.by_kind["call"] == 600000
    else:
        assert called + trace.loss.by_kind.get("call", 0) <= 600000
