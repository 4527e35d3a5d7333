"""Audit events, against sys.addaudithook in Python."""

from __future__ import annotations

import json

import pytest
from children import child

import eventprof

WITNESS = """
    import json, sys, tempfile, threading
    import eventprof
    seen, on = [], []
    def hook(event, arguments):
        if on and event != "witness.off":
            seen.append(event)
    sys.addaudithook(hook)
"""

WORK = """
    def work():
        on.append(1)
        for i in range(3):
            open("/dev/null").close()
        sys.audit("own.event", 1, "secret")
        sys.audit("own.event." + str(len(seen)), object())
        compile("1", "some file", "eval")
        thread = threading.Thread(target=lambda: sys.audit("on.thread"))
        thread.start(); thread.join()
        def failing(event, arguments):
            pass
        id(object())
        on.clear()
"""


def run(code):
    status, output, errors = child(WITNESS + WORK + code, "auto")
    assert status == 0, errors
    return json.loads(output)


def test_events_are_those_that_a_hook_in_python_sees(tmp_path):
    found = run(
        f"""
    with (eventprof.record(audit=True, calls=False, c_calls=False, memory=False) as rec,
          eventprof.record(audit=True, output={str(tmp_path / "log.epr")!r}) as log):
        work()
    rec.trace.save({str(tmp_path / "saved.epr")!r})
    names = [each.trace.audit["name"].tolist() for each in (rec, log)]
    for path in ({str(tmp_path / "log.epr")!r}, {str(tmp_path / "saved.epr")!r}):
        names.append(eventprof.open(path).audit["name"].tolist())
    functions = rec.trace.functions["name"]
    audit = rec.trace.audit
    callers = {{functions[row] for row, name in zip(audit["caller"], audit["name"]) if name == "open"}}
    events = rec.trace.events
    text = repr([events[c].tolist() for c in events.columns])
    print(json.dumps([seen, names, sorted(callers), "secret" in text,
                      functions.tolist().count("open")]))
    """
    )
    seen, names, callers, tells, count = found
    assert len(seen) > 6 and "own.event" in seen and "on.thread" in seen
    for each in names:
        assert each == seen
    assert callers == ["work"] and not tells and count == 1


def test_each_recorder_has_its_own_choice(tmp_path):
    found = run(
        f"""
    log = {str(tmp_path / "log.epr")!r}
    quiet = dict(calls=False, c_calls=False, memory=False)
    all_of_it = eventprof.record(audit=True, **quiet)
    opens = eventprof.record(audit=["open", "nothing"], **quiet)
    own = eventprof.record(audit=("own.*",), output=log, **quiet)
    without = eventprof.record()
    bounds = []
    with without, opens, own:
        work()
        bounds.append(len(seen))
        with all_of_it:
            work()
        bounds.append(len(seen))
    with opens:
        work()
    own.trace.save(log + ".saved")
    print(json.dumps([seen, bounds, *([r.trace.audit["name"].tolist()] for r in
          (all_of_it, opens, own, without)),
          [eventprof.open(log).audit["name"].tolist()],
          [eventprof.open(log + ".saved").audit["name"].tolist()]]))
    """
    )
    seen, (first, second), (every,), (opens,), (own,), (without,), (log,), (saved,) = found
    assert every == seen[first:second]
    assert opens == ["open"] * 3
    expected = [name for name in seen[:second] if name.startswith("own.")]
    assert own == log == saved == expected and len(own) == 4
    assert without == []


def test_hooks_of_ours_that_go_in_and_out_are_not_in_it():
    found = run(
        """
    with eventprof.record(audit=True, memory=False) as rec:
        on.append(1)
        with eventprof.record(gc=True, calls=False, c_calls=False):
            with eventprof.record(audit=["x"]):
                pass
        on.clear()
    print(json.dumps(rec.trace.audit["name"].tolist()))
    """
    )
    assert found == []


def test_a_hook_that_admits_no_other_is_named():
    status, output, errors = child(
        """
    import sys, eventprof
    def hook(event, arguments):
        if event == "sys.addaudithook":
            raise RuntimeError("no more hooks")
    sys.addaudithook(hook)
    before = raw.hooks()
    try:
        eventprof.record(audit=True).start()
    except eventprof.ToolInUseError as error:
        print(error)
    assert raw.hooks() == before
    with eventprof.record() as rec:
        len("x")
    print(len(rec.trace.events) > 0)
    """,
        "auto",
        timeout=900,
    )
    assert status == 0, errors
    assert output.splitlines() == [
        "another audit hook of this process forbids to add one; record without audit=",
        "True",
    ]


def test_an_event_that_a_hook_forbids_is_in_it_and_stays_forbidden():
    status, output, errors = child(
        """
    import sys, eventprof
    with eventprof.record(audit=["forbidden"], memory=False) as rec:
        pass
    def hook(event, arguments):
        if event == "forbidden":
            raise PermissionError("by the hook")
    sys.addaudithook(hook)
    with rec:
        try:
            sys.audit("forbidden")
        except PermissionError as error:
            print(error)
    print(len(rec.trace.audit))
    """,
        "auto",
        timeout=900,
    )
    assert status == 0, errors
    assert output == "by the hook\n1\n"


def test_names_without_end():
    (count, names, lost) = run(
        """
    with eventprof.record(audit=["endless.*"], calls=False, c_calls=False, memory=False) as rec:
        for i in range(6000):
            sys.audit(f"endless.{i}")
    names = rec.trace.audit["name"].tolist()
    print(json.dumps([len(names), len(set(names)), rec.trace.loss.total]))
    """
    )
    assert count == 6000 and lost == 0
    assert names == 6000


@pytest.mark.parametrize(
    ("audit", "error", "text"),
    [
        ("open", TypeError, "audit"),
        (3, TypeError, "audit"),
        ([1], TypeError, "audit"),
        ([""], ValueError, "audit"),
    ],
)
def test_arguments(audit, error, text):
    with pytest.raises(error, match=text):
        eventprof.record(audit=audit)
    assert eventprof.record(audit=False).options.audit == ()
    assert eventprof.record(audit=True).options.audit == ("*",)
