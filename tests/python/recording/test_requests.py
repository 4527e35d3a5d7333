"""Requests by middleware: what the application does is as without it, and each is a row."""

import asyncio
import contextlib
import json
import logging
import re
import time

import numpy as np
import pytest
from json_schema import conform

import eventprof
from eventprof import cli
from eventprof.tables.requests import requests_table

pytestmark = pytest.mark.version


def scope_of(path="/", method="GET", **more):
    return {"type": "http", "method": method, "path": path, **more}


async def ask(app, scope):
    """Send a request; give the messages that came back."""
    sent = []

    async def receive():
        return {"type": "http.request"}

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    return sent


def answering(status=200, parts=(b"x",), wait=0.0, raises=None, after=None, route=None):
    """An application of ASGI that answers like this."""

    async def app(scope, receive, send):
        if route is not None:
            scope["route"] = route
        await asyncio.sleep(wait)
        await send({"type": "http.response.start", "status": status})
        for number, part in enumerate(parts):
            await asyncio.sleep(0)
            await send(
                {"type": "http.response.body", "body": part, "more_body": number < len(parts) - 1}
            )
        if after is not None:
            after()
        if raises is not None:
            raise raises

    return app


class Route:
    path = "/orders/{number}"


def columns(table, *names):
    return [tuple(row) for row in zip(*(table[name].tolist() for name in names), strict=True)]


@pytest.mark.parametrize("memory", [False, True])
def test_a_request_is_a_row_with_its_labels(memory):
    app = eventprof.ASGIMiddleware(answering(201, route=Route()))
    with eventprof.record(memory=memory) as rec:
        sent = asyncio.run(ask(app, scope_of("/orders/7", "POST")))
    trace = rec.trace

    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert columns(trace.requests, "method", "route", "path", "status", "error", "flags") == [
        ("POST", "/orders/{number}", "/orders/7", "201", None, 0)
    ]
    assert trace.requests["calls"][0] > 0
    assert trace.verify()


def test_requests_at_once_do_not_mix():
    def step(number):
        return number

    async def app(scope, receive, send):
        for _ in range(5):
            await asyncio.sleep(0.001)
            step(scope["path"])
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body"})

    middleware = eventprof.ASGIMiddleware(app)

    async def main():
        await asyncio.gather(*(ask(middleware, scope_of(f"/{number}")) for number in range(6)))

    with eventprof.record(memory=False) as rec:
        asyncio.run(main())
    trace = rec.trace

    assert sorted(trace.requests["path"].tolist()) == [f"/{number}" for number in range(6)]
    for row in trace.requests:
        answer = trace.where(request=row.request)
        assert (answer.calls["name"] == step.__qualname__).sum() == 5
        assert {*answer.calls["path"].tolist()} == {row.path}
    assert np_all(trace.requests["busy"] <= trace.requests["total"])


def np_all(values):
    return all(values.tolist())


def test_a_stream_ends_with_its_body_and_not_with_the_work_behind_it():
    app = eventprof.ASGIMiddleware(
        answering(parts=(b"1", b"2", b"3"), after=lambda: time.sleep(0.05))
    )
    with eventprof.record(memory=False) as rec:
        sent = asyncio.run(ask(app, scope_of("/")))
    trace = rec.trace

    assert len(sent) == 4
    assert trace.requests["total"][0] < 45_000_000
    slept = trace.calls["request"][trace.calls["name"] == "sleep"]
    assert set(slept.tolist()) >= {trace.requests["request"][0]}


@pytest.mark.parametrize("early", [True, False])
def test_an_exception_goes_on_unchanged(early):
    error = ValueError("its own")
    parts = () if early else (b"x",)
    app = eventprof.ASGIMiddleware(answering(500, parts=parts, raises=error))
    with eventprof.record(memory=False) as rec:
        with pytest.raises(ValueError) as raised:
            asyncio.run(ask(app, scope_of("/")))

    assert raised.value is error
    assert columns(rec.trace.requests, "status", "error", "flags") == [("500", "ValueError", 0)]


def test_other_scopes_are_handed_on():
    seen = []

    async def app(scope, receive, send):
        seen.append((scope, receive, send))

    middleware = eventprof.ASGIMiddleware(app)
    with eventprof.record(memory=False) as rec:
        for kind in ("lifespan", "websocket", "another"):
            given = ({"type": kind}, object(), object())
            asyncio.run(middleware(*given))
            assert seen[-1][0] is given[0] and seen[-1][1:] == given[1:]

    assert len(rec.trace.requests) == 0


def test_a_cancelled_request_ends():
    async def main():
        task = asyncio.create_task(ask(app, scope_of("/")))
        await asyncio.sleep(0.001)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    app = eventprof.ASGIMiddleware(answering(wait=60))
    with eventprof.record(memory=False) as rec:
        asyncio.run(main())

    assert columns(rec.trace.requests, "error", "flags") == [("CancelledError", 0)]


# ---- WSGI ----------------------------------------------------------------------------------------


def serve(app, path="/", method="GET"):
    """As a server: give the status and the body's parts."""
    statuses = []
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path}
    body = app(environ, lambda status, headers, *more: statuses.append(status))
    try:
        parts = list(body)
    finally:
        if hasattr(body, "close"):
            body.close()
    return statuses, parts, body


class Closed:
    def __init__(self, parts):
        self.parts, self.closed = parts, 0

    def __iter__(self):
        return iter(self.parts)

    def close(self):
        self.closed += 1


def step(number):
    return number


def test_a_list_is_handed_on_as_it_is():
    given = [b"one", b"two"]

    def app(environ, start_response):
        start_response("200 OK", [])
        return given

    with eventprof.record(memory=False) as rec:
        statuses, parts, body = serve(eventprof.WSGIMiddleware(app), "/list", "PUT")
        step(0)
    trace = rec.trace

    assert (statuses, parts) == (["200 OK"], given)
    assert body is given
    assert columns(trace.requests, "method", "path", "status", "flags") == [
        ("PUT", "/list", "200", 0)
    ]
    assert trace.calls["request"][trace.calls["name"] == "step"].tolist() == [None]


def test_a_body_that_is_made_while_it_is_read_belongs_to_the_request():
    def app(environ, start_response):
        start_response("200 OK", [])
        for number in range(3):
            step(number)
            yield b"x"

    middleware = eventprof.WSGIMiddleware(app)
    with eventprof.record(memory=False) as rec:
        first = middleware({"PATH_INFO": "/1"}, lambda *_: None)
        second = middleware({"PATH_INFO": "/2"}, lambda *_: None)
        assert [*zip(first, second, strict=True)] == [(b"x", b"x")] * 3
        step(0)
        for body in (first, second):
            body.close()
            body.close()
    trace = rec.trace

    of_steps = trace.calls["path"][trace.calls["name"] == "step"].tolist()
    assert of_steps == ["/1", "/2"] * 3 + [None]
    assert len(trace.requests) == 2


def test_a_body_is_closed_once_a_close_and_its_errors_go_on():
    body = Closed([b"a"])
    failing = Closed(1 / 0 for _ in range(1))

    with eventprof.record(memory=False) as rec:
        serve(eventprof.WSGIMiddleware(lambda environ, start: body))
        with pytest.raises(ZeroDivisionError):
            serve(eventprof.WSGIMiddleware(lambda environ, start: failing))
        with pytest.raises(KeyError):
            serve(eventprof.WSGIMiddleware(lambda environ, start: {}["x"]))

    assert (body.closed, failing.closed) == (1, 1)
    assert rec.trace.requests["error"].tolist() == [None, "ZeroDivisionError", "KeyError"]
    assert rec.trace.requests["flags"].tolist() == [0, 0, 0]


def test_a_body_that_is_never_closed_leaves_no_label():
    def app(environ, start_response):
        return iter([b"x"])

    with eventprof.record(memory=False) as rec:
        eventprof.WSGIMiddleware(app)({}, None)
        step(0)

    assert rec.trace.calls["request"][rec.trace.calls["name"] == "step"].tolist() == [None]
    assert rec.trace.requests["flags"].tolist() == [2]


def test_a_file_of_the_servers_is_handed_on():
    class Wrapper:
        def __iter__(self):
            return iter([b"x"])

    body = Wrapper()
    app = eventprof.WSGIMiddleware(lambda environ, start: body)

    assert app({"wsgi.file_wrapper": Wrapper}, None) is body


# ---- Both ----------------------------------------------------------------------------------------


class Hostile:
    """Whatever one asks of it raises."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __str__(self):
        raise RuntimeError("no text")


def test_no_error_of_ours_reaches_the_application(caplog):
    async def app(scope, receive, send):
        scope["route"] = Hostile()
        await send({"type": "http.response.start", "status": Hostile()})
        await send({"type": "http.response.body"})

    with caplog.at_level(logging.WARNING, "eventprof"), eventprof.record(memory=False) as rec:
        asyncio.run(ask(eventprof.ASGIMiddleware(app), scope_of(Hostile(), Hostile())))
        _, parts, _ = serve(
            eventprof.WSGIMiddleware(lambda environ, start: [start(Hostile(), []), b"x"][1:]),
            Hostile(),
        )

    assert parts == [b"x"]
    assert rec.trace.requests["path"].tolist() == ["(Hostile without text)"] * 2
    assert "RuntimeError" in caplog.text


def test_without_a_recorder_the_answer_is_the_same():
    assert len(asyncio.run(ask(eventprof.ASGIMiddleware(answering()), scope_of("/")))) == 2
    app = eventprof.WSGIMiddleware(lambda environ, start: (start("200 OK", []), iter([b"x"]))[1])
    assert serve(app)[:2] == (["200 OK"], [b"x"])


def test_a_slow_request_and_a_failed_one_write_files(tmp_path):
    flight = eventprof.flight_recorder("8 MiB", folder=tmp_path, pause=0, memory=False, keep=3)
    slow = eventprof.ASGIMiddleware(
        answering(wait=0.03, route=Route()), flight=flight, longer_than="20 ms"
    )
    failing = eventprof.WSGIMiddleware(
        lambda environ, start: {}["x"], flight=flight, raises=(KeyError,)
    )
    quick = eventprof.ASGIMiddleware(answering(), flight=flight, longer_than="10 s")
    with flight:
        for _ in range(2):
            asyncio.run(ask(slow, scope_of("/orders/3")))
        asyncio.run(ask(quick, scope_of("/")))
        with pytest.raises(KeyError):
            serve(failing, "/x")
        flight.wait()

    assert [written.trigger for written in flight.written] == [
        "GET /orders/{number}", "GET /orders/{number}", "GET: KeyError"
    ]  # fmt: skip
    assert " ms (request " in flight.written[0].reason
    assert flight.written[2].reason.startswith("GET raised KeyError (request ")
    trace = eventprof.open(flight.written[2].path)
    assert trace.requests["error"].tolist()[-1] == "KeyError"
    assert trace.verify()


def test_limits_need_a_flight_recorder_and_must_make_sense(tmp_path):
    flight = eventprof.flight_recorder("1 MiB", folder=tmp_path)
    for make, what in (
        (eventprof.ASGIMiddleware, print),
        (eventprof.WSGIMiddleware, print),
        (eventprof.request, "name"),
    ):
        with pytest.raises(ValueError, match="need flight="):
            make(what, longer_than="1 s")
        with pytest.raises(ValueError, match="needs longer_than= or raises="):
            make(what, flight=flight)
        with pytest.raises(TypeError, match="types of exceptions"):
            make(what, flight=flight, raises="ValueError")
        with pytest.raises(TypeError, match="flight must be a flight recorder, not 3"):
            make(what, flight=3, longer_than="1 s")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (((3,), {}), TypeError, "route must be a str, not 3"),
        (((None,), {}), TypeError, "route must be a str, not None"),
        ((("a",), {"method": 3}), TypeError, "method must be a str, not 3"),
        ((("a",), {"request": "mine"}), ValueError, "makes the label request itself"),
    ],
)
def test_a_request_has_a_route_and_a_method_of_text(given, error, message):
    with pytest.raises(error, match=message):
        eventprof.request(*given[0], **given[1])


def test_a_wrong_route_that_comes_later_is_told_to_the_logger(caplog):
    with eventprof.record(memory=False) as rec, eventprof.request("right") as job:
        job.add(route=3)

    assert "route must be a str, not 3" in caplog.text
    assert rec.trace.requests["route"].tolist() == ["right"]


@pytest.mark.parametrize("make", [eventprof.ASGIMiddleware, eventprof.WSGIMiddleware])
def test_middleware_wraps_what_can_be_called(make):
    with pytest.raises(TypeError, match=f"{make.__name__} wraps an application"):
        make(None)


def test_a_request_by_hand_is_a_call_of_the_tree_in_a_function():
    with eventprof.record(memory=False) as rec:
        with eventprof.request("job", method="task", queue="low") as job:
            step(1)
            job.add(status="done")
            with eventprof.request("inner"):
                step(2)
    trace = rec.trace

    assert columns(trace.requests, "method", "route", "status") == [
        ("task", "job", "done"), ("task", "inner", "done")
    ]  # fmt: skip
    assert trace.spans["call"].tolist() == [*trace.spans["call"].compressed()]
    assert trace.spans["queue"].tolist() == ["low", "low"]
    first, second = trace.requests["request"].tolist()
    of_steps = trace.calls["request"][trace.calls["name"] == "step"].tolist()
    assert of_steps == [first, second]


def abs_of(number):
    return number


class Unnamed:
    """A trace of which the longest calls have no function: a damaged file lost their names."""

    def __init__(self, trace, name):
        self._trace = trace
        row = trace.functions["name"].tolist().index(name)
        self._lost = trace._core.calls("function") == row

    @property
    def _core(self):
        return self

    def __getattr__(self, name):
        return getattr(self._trace, name)

    def calls(self, name, first, count):
        values = self._trace._core.calls(name, first, count)
        lost = self._lost[first : first + count]
        if name == "self":
            return np.where(lost, 1000, 1)
        return np.where(lost, np.int32(-1), values) if name == "function" else values


def test_a_call_without_a_function_is_the_longest_of_no_request():
    with eventprof.record(memory=False, c_calls=False) as rec:
        for _ in range(3):
            with eventprof.request("job"):
                step(1)
                step(2)
                sorted([1, 2], key=abs_of)
    trace = rec.trace

    found = requests_table(Unnamed(trace, "step"))

    assert columns(found, "most_in", "most_self") == [("abs_of", 2)] * 3
    for column in ("busy", "calls", "allocated"):
        assert found[column].tolist() == trace.requests[column].tolist()


def test_a_decorator_makes_each_run_a_request():
    @eventprof.request("nightly", method="job")
    async def nightly():
        await asyncio.sleep(0.001)

    async def main():
        await asyncio.gather(nightly(), nightly())

    with eventprof.record(memory=False) as rec:
        asyncio.run(main())

    assert rec.trace.requests["route"].tolist() == ["nightly", "nightly"]
    assert len({*rec.trace.requests["request"].tolist()}) == 2
    assert rec.trace.requests["flags"].tolist() == [0, 0]


# ---- The verb ------------------------------------------------------------------------------------


def parse(number):
    return sorted(range(number))


@pytest.fixture
def recording(tmp_path):
    with eventprof.record() as rec:
        for number in (1, 1_000_000, 10):
            with eventprof.request("/numbers/{n}", method="GET") as request:
                parse(number)
                request.add(status=200)
        with eventprof.request("/other\x1b[31m"):
            pass
    path = tmp_path / "service.epr"
    rec.trace.save(path)
    return str(path)


def test_the_verb_lists_the_slowest_first(recording, capsys):
    assert cli.main(["requests", recording, "--limit", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].split()[:5] == ["total", "busy", "waited", "allocated", "status"]
    assert all("GET /numbers/{n}" in line or "/other" in line for line in lines[1:3])
    # On a machine that is busy anything may have taken the most of it.
    assert any(re.search(r"[mun]?s in \S+$", line) for line in lines[1:3])
    assert lines[-1] == "and 2 more; --limit 0 shows all"


@pytest.mark.thorough
def test_the_verb_answers_programs(recording, capsys):
    assert cli.main(["requests", recording, "--json", "--limit", "0"]) == 0
    text = capsys.readouterr().out
    answer = json.loads(text)
    conform(answer)
    totals = [row["total"] for row in answer["rows"]]

    assert len(totals) == 4 and totals == sorted(totals, reverse=True)
    assert "\x1b" not in text
    # On a machine that is busy any of them may be the slowest.
    (large,) = (row for row in answer["rows"] if row["allocated"] > 1_000_000)
    assert (large["route"], large["status"]) == ("/numbers/{n}", "200")
    assert large["most_in"] and large["most_self"] <= large["busy"] <= large["total"]

    assert cli.main(["requests", recording, "--json", "--request", large["request"]]) == 0
    answer = json.loads(capsys.readouterr().out)
    conform(answer)
    assert {row["name"] for row in answer["rows"]} >= {"parse", "sorted"}

    assert cli.main(["requests", recording, "--json", "--budget", "150"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] > 0


def test_the_verb_chooses_routes_and_escapes_text(recording, capsys):
    assert cli.main(["requests", recording, "--route", "/o*"]) == 0
    text = capsys.readouterr().out

    assert len(text.splitlines()) == 2
    assert "\x1b" not in text and "/other\\x1b[31m" in text


def test_the_verb_says_what_is_not_there(recording, tmp_path, capsys):
    assert cli.main(["requests", recording, "--request", "1-1-1"]) == 2
    assert "no request '1-1-1'" in capsys.readouterr().err
    with eventprof.record(memory=False) as rec:
        pass
    rec.trace.save(tmp_path / "none.epr")
    assert cli.main(["requests", str(tmp_path / "none.epr")]) == 1
    assert "eventprof.ASGIMiddleware" in capsys.readouterr().err
