"""Requests of a service: a span and labels for each, by middleware of ASGI, WSGI and Django.

No framework is imported. What fails in here is told to the logger ``eventprof``; the application
never sees it.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from .. import _core
from ..recording.decorate import decorate

if TYPE_CHECKING:
    from ..recording.flight import FlightRecorder

_Function = TypeVar("_Function", bound=Callable[..., Any])
_App = TypeVar("_App")
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[Any]]
_Send = Callable[[Any], Awaitable[None]]
_Errors = type[BaseException] | tuple[type[BaseException], ...]

#: The spans of requests have this name; `Trace.requests` looks for it.
SPAN = "request"
_numbers = itertools.count(1)


def _report(error: Exception) -> None:
    import logging

    logging.getLogger("eventprof").warning("a request is not recorded as it should be: %r", error)


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"{name} must be a str, not {value!r}")


def _application(function: str, app: _App) -> _App:
    if callable(app):
        return app
    raise TypeError(f"{function} wraps an application, which is called, not {app!r}")


class _Limits:
    """What makes a flight recorder write a file."""

    __slots__ = ("flight", "longer_than_ns", "raises")

    def __init__(
        self,
        function: str,
        flight: FlightRecorder | None,
        longer_than: int | str | None,
        raises: _Errors,
    ) -> None:
        self.flight = flight
        self.longer_than_ns: int | None = None
        self.raises: tuple[type[BaseException], ...] = ()
        if flight is not None:
            from ..recording.flight import FlightRecorder, checked_limits

            if not isinstance(flight, FlightRecorder):
                raise TypeError(f"flight must be a flight recorder, not {flight!r}")
            self.longer_than_ns, self.raises = checked_limits(function, longer_than, raises)
        elif longer_than is not None or raises:
            raise ValueError(f"{function}: longer_than= and raises= need flight=, which writes")


_NO_LIMITS = _Limits("request()", None, None, ())


class Request:
    """A request or job: a context manager and decorator, made by `eventprof.request`.

    Attributes
    ----------
    id : str
        The value of its label ``request``: the process's id and a number.
    """

    __slots__ = (
        "_apart", "_began_ns", "_is_open", "_label", "_labels", "_limits", "_method", "_route",
        "_span", "id",
    )  # fmt: skip

    def __init__(
        self,
        route: str | None,
        method: str | None,
        labels: dict[str, Any],
        limits: _Limits = _NO_LIMITS,
        apart: bool = False,
    ) -> None:
        self._route, self._method, self._labels = route, method, labels
        self._limits, self._apart = limits, apart
        self._label: _core.Label | None = None
        self._is_open = False
        self._began_ns = 0
        self.id = ""

    def __enter__(self) -> Self:
        try:
            self.id = f"{os.getpid()}-{next(_numbers)}"
            self._label = _core.label(**self._told())
            self._label.__enter__()
            self._span = _core.wrapped_span(SPAN, self._apart)
            self._span.__enter__()
            self._is_open = True
        except Exception as error:
            _report(error)
        self._began_ns = time.monotonic_ns()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(kind)
        self._leave()

    def add(self, *, route: str | None = None, **labels: Any) -> None:
        """Add labels, also when it is under way: ``add(status=200)``; or another route.

        Parameters
        ----------
        route : str, optional
            What it asked for, where that is not known before.
        **labels : object
            As those of `eventprof.label`.
        """
        try:
            if route is not None:
                self._route = labels["route"] = _text("route", route)
            if labels and self._label is not None:
                self._labels = {**self._labels, **labels}
                self._label.add(**labels)
        except Exception as error:
            _report(error)

    def _end(self, kind: type[BaseException] | None) -> None:
        """End the span, once. The labels stay, for what comes after the answer.

        An exception may come after that, from an application that has answered by an error.
        """
        was_open, self._is_open = self._is_open, False
        if not was_open and kind is None:
            return
        took_ns = time.monotonic_ns() - self._began_ns
        try:
            if kind is not None and self._label is not None:
                self._label.add(error=kind.__name__)
            if was_open:
                self._span.__exit__(None, None, None)
            limits = self._limits
            if limits.flight is not None:
                name = " ".join(word for word in (self._method, self._route) if word) or SPAN
                longer_than_ns = limits.longer_than_ns if was_open else None
                limits.flight._took(
                    name, took_ns, kind, longer_than_ns, limits.raises, f" (request {self.id})"
                )
        except Exception as error:
            _report(error)

    def _leave(self) -> None:
        """End the labels."""
        label, self._label = self._label, None
        if label is not None:
            label.__exit__(None, None, None)

    def _told(self) -> dict[str, Any]:
        own = {"request": self.id, "method": self._method, "route": self._route, **self._labels}
        return {name: value for name, value in own.items() if value is not None}

    def _again(self) -> Request:
        return Request(self._route, self._method, dict(self._labels), self._limits, self._apart)

    def __call__(self, function: _Function) -> _Function:
        """Make each run of a function, coroutine function or generator function a request."""
        return decorate("request", self, self._again, function)


def request(
    route: str,
    *,
    method: str | None = None,
    flight: FlightRecorder | None = None,
    longer_than: int | str | None = None,
    raises: _Errors = (),
    **labels: object,
) -> Request:
    """Mark the time in which a request, a job or a message is answered.

    Parameters
    ----------
    route : str
        What is asked for, the same text for all requests of a kind: ``"/orders/{id}"``, or the name
        of a job.
    method : str, optional
        How: ``"GET"``, ``"task"``.
    flight : FlightRecorder, optional
        It writes a file when the request takes longer or raises.
    longer_than : int or str, optional
        The longest time that is right: nanoseconds, or text such as ``"500 ms"``.
    raises : type or tuple of types
        Exceptions that leave the request.
    **labels : object
        As those of `eventprof.label`.

    Returns
    -------
    Request
        A context manager, for one use, and a decorator. Its ``add(status=200)`` gives labels.

    Raises
    ------
    TypeError, ValueError
        An argument is not what it should be, or a limit has no `flight`; a label has the name
        ``request``, which is the request's own.

    Notes
    -----
    It is a span with the name ``request`` and a label of that name, which has a value of its own
    for each. All of them are in `Trace.requests`.

    Examples
    --------
    >>> with eventprof.record() as rec:
    ...     with eventprof.request("sort", method="job") as job:
    ...         job.add(status=str(sorted("ab")))
    >>> rec.trace.requests[["method", "route", "status"]]
    requests: 1 row, 3 columns
       method  route  status
    0  job     sort   ['a', 'b']
    """
    _text("route", route)
    if method is not None:
        _text("method", method)
    if SPAN in labels:
        raise ValueError("request() makes the label request itself: choose another name")
    return Request(route, method, labels, _Limits("request()", flight, longer_than, raises))


# ---- ASGI ----------------------------------------------------------------------------------------


class ASGIMiddleware:
    """Record each HTTP request of an ASGI application (version 3) as a request.

    Parameters
    ----------
    app : callable
        The application. Websockets, lifespan and whatever else are handed on to it.
    flight : FlightRecorder, optional
        It writes a file when a request takes longer or raises.
    longer_than : int or str, optional
        The longest time that is right: nanoseconds, or text such as ``"500 ms"``.
    raises : type or tuple of types
        Exceptions that leave the application.

    Raises
    ------
    TypeError, ValueError
        An argument is not what it should be, or a limit has no `flight`.

    Notes
    -----
    Labels: ``request``, ``method``, ``path``, ``status``, and ``route`` where the framework puts it
    into the scope, as FastAPI does. A request ends with the last part of its body; work in the
    background that comes after it still has its labels. One whose client is gone may have no
    status.
    """

    def __init__(
        self,
        app: Callable[[Any, Any, Any], Awaitable[None]],
        *,
        flight: FlightRecorder | None = None,
        longer_than: int | str | None = None,
        raises: _Errors = (),
    ) -> None:
        self.app = _application("ASGIMiddleware", app)
        self._limits = _Limits("ASGIMiddleware", flight, longer_than, raises)

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer a request."""
        if scope.get("type") != "http" or not _core.records_labels():
            await self.app(scope, receive, send)
            return
        labels = {"path": scope.get("path")}
        answer = Request(None, scope.get("method"), labels, self._limits, apart=True)

        async def sending(message: Any) -> None:
            kind = message.get("type") if isinstance(message, MutableMapping) else None
            if kind == "http.response.start":
                answer.add(status=message.get("status"))
            await send(message)
            if kind == "http.response.body" and not message.get("more_body", False):
                answer.add(route=_route_of_scope(scope))
                answer._end(None)

        with answer:
            try:
                await self.app(scope, receive, sending)
            finally:
                if answer._is_open:
                    answer.add(route=_route_of_scope(scope))


def _route_of_scope(scope: _Scope) -> str | None:
    """Return the template of the route: FastAPI's and Starlette's, aiohttp's and Litestar's."""
    try:
        route = scope.get("route")
        path = getattr(route, "path_format", None) or getattr(route, "path", None)
        path = path or scope.get("path_template")
        return path if isinstance(path, str) else None
    except Exception as error:  # an object of the framework's
        _report(error)
        return None


# ---- WSGI ----------------------------------------------------------------------------------------


class WSGIMiddleware:
    """Record each request of a WSGI application as a request.

    Parameters
    ----------
    app : callable
        The application.
    flight, longer_than, raises
        As of `ASGIMiddleware`.

    Raises
    ------
    TypeError, ValueError
        An argument is not what it should be, or a limit has no `flight`.

    Notes
    -----
    Labels: ``request``, ``method``, ``path``, ``status``, and ``route`` where the framework puts
    its request into the environment, as Flask does. A request ends when its body is read or closed.
    """

    def __init__(
        self,
        app: Callable[[dict[str, Any], Any], Iterable[bytes]],
        *,
        flight: FlightRecorder | None = None,
        longer_than: int | str | None = None,
        raises: _Errors = (),
    ) -> None:
        self.app = _application("WSGIMiddleware", app)
        self._limits = _Limits("WSGIMiddleware", flight, longer_than, raises)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer a request."""
        if not _core.records_labels():
            return self.app(environ, start_response)
        labels = {"path": environ.get("PATH_INFO")}
        answer = Request(None, environ.get("REQUEST_METHOD"), labels, self._limits, apart=True)

        def starting(status: str, headers: Any, *more: Any) -> Any:
            # Flask takes its request out of the environment when the application has returned.
            answer.add(
                route=_route_of_environ(environ),
                status=status.partition(" ")[0] if isinstance(status, str) else status,
            )
            return start_response(status, headers, *more)

        answer.__enter__()
        try:
            body = self.app(environ, starting)
        except BaseException as error:
            answer.__exit__(type(error), error, None)
            raise
        wrapper = environ.get("wsgi.file_wrapper")
        is_file = isinstance(wrapper, type) and isinstance(body, wrapper)
        if is_file or isinstance(body, (list, tuple)):
            answer.__exit__(None, None, None)  # servers look at what it is: its length, its file
            return body
        answer._leave()
        return _Body(body, answer)


class _Body:
    """A body that is made while it is read; the request ends with it."""

    def __init__(self, body: Iterable[bytes], answer: Request) -> None:
        self._body, self._answer = body, answer
        self._parts: Iterator[bytes] | None = None
        self._label = _core.label(**answer._told())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        # Between the parts the server may do something else on this thread.
        with self._label:
            try:
                if self._parts is None:
                    self._parts = iter(self._body)
                return next(self._parts)
            except StopIteration:
                self._answer._end(None)
                raise
            except BaseException as error:
                self._label.add(error=type(error).__name__)
                self._answer._end(type(error))
                raise

    def close(self) -> None:
        """Close the body, as the server must."""
        with self._label:
            try:
                close = getattr(self._body, "close", None)
                if close is not None:
                    close()
            finally:
                self._answer._end(None)


def _route_of_environ(environ: dict[str, Any]) -> str | None:
    """Return the template of the route: Flask's, and of what else is made with Werkzeug."""
    try:
        rule = getattr(environ.get("werkzeug.request"), "url_rule", None)
        path = getattr(rule, "rule", None)
        return path if isinstance(path, str) else None
    except Exception as error:  # an object of the framework's
        _report(error)
        return None


# ---- Django --------------------------------------------------------------------------------------


def django_middleware(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Record each request of a Django site as a request, under WSGI and ASGI.

    Put ``"eventprof.plugins.requests.django_middleware"`` first into ``MIDDLEWARE``. Settings:
    ``EVENTPROF_FLIGHT``, a flight recorder, ``EVENTPROF_LONGER_THAN`` and ``EVENTPROF_RAISES``.

    Parameters
    ----------
    get_response : callable
        Given by Django.

    Returns
    -------
    callable
        For Django.

    Notes
    -----
    Labels: ``request``, ``method``, ``path``, ``route``, ``status``, and ``error``, the exception
    of a view. ``request.eventprof_request.add(user=...)`` adds some. A request ends when the view
    has returned, or, if its body is streamed, when the body is closed.
    """
    from asgiref.sync import iscoroutinefunction, markcoroutinefunction
    from django.conf import settings

    limits = _Limits(
        "django_middleware",
        getattr(settings, "EVENTPROF_FLIGHT", None),
        getattr(settings, "EVENTPROF_LONGER_THAN", None),
        getattr(settings, "EVENTPROF_RAISES", ()),
    )

    def begin(given: Any) -> Request:
        answer = Request(None, given.method, {"path": given.path}, limits, apart=True)
        given.eventprof_request = answer
        return answer.__enter__() if _core.records_labels() else answer

    def end(given: Any, response: Any) -> None:
        answer = given.eventprof_request
        match = getattr(given, "resolver_match", None)
        route = getattr(match, "route", None)
        answer.add(route=f"/{route}" if route is not None else None, status=response.status_code)
        closers = getattr(response, "_resource_closers", None)
        if getattr(response, "streaming", False) and closers is not None:
            closers.append(lambda: answer._end(None))
        else:
            answer._end(None)

    def raised(given: Any, error: Exception) -> None:
        """Note what a view raised; Django makes an answer of it."""
        given.eventprof_request._end(type(error))

    made: Any
    if iscoroutinefunction(get_response):

        async def answer_async(given: Any) -> Any:
            answer = begin(given)
            try:
                response = await get_response(given)
                end(given, response)
                return response
            except BaseException as error:
                answer._end(type(error))
                raise
            finally:
                answer._leave()

        async def raised_async(given: Any, error: Exception) -> None:
            raised(given, error)

        made = markcoroutinefunction(answer_async)
        made.process_exception = raised_async
        return made  # type: ignore[no-any-return]

    def answer_sync(given: Any) -> Any:
        answer = begin(given)
        try:
            response = get_response(given)
            end(given, response)
            return response
        except BaseException as error:
            answer._end(type(error))
            raise
        finally:
            answer._leave()

    made = answer_sync
    made.process_exception = raised
    return made  # type: ignore[no-any-return]


django_middleware.sync_capable = True  # type: ignore[attr-defined]
django_middleware.async_capable = True  # type: ignore[attr-defined]
