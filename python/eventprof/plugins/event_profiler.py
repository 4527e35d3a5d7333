"""A drop-in for ``cpyquickhelper.profiling``: the same classes, on this recorder."""

from __future__ import annotations

import operator
import os
import threading
import time
import warnings
from collections.abc import Callable
from types import FrameType, SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._optional import require

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EventProfiler", "EventProfilerDebug", "WithEventProfiler"]

_IMPLEMENTATIONS = ("python", "pybind11", "c")
_COLUMNS = 6
_GROW = 2  # ep_on_full: more memory
# Calls, and the domains of the interpreter's own allocator.
_KINDS = sum(
    1 << row[0] for row in _core.kind_table() if row[3] and row[5] in (None, "raw", "mem", "obj")
)


class _Categories:
    """What codes stand for: texts in order, and the code of each of the core's."""

    def __init__(self, texts: list[str]) -> None:
        numbers: dict[str, int] = {}
        # pandas cannot hash surrogates: a single one would make every row of the frame unreadable.
        self._code = [
            numbers.setdefault(text.encode("utf-8", "backslashreplace").decode(), len(numbers))
            for text in texts
        ]
        self.texts = list(numbers)

    def codes(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Return codes of the core as codes of these texts; -1 stays."""
        if len(self.texts) == len(self._code):
            return codes
        table: NDArray[Any] = np.array([*self._code, -1], dtype=_code_type(len(self.texts)))
        recoded: NDArray[Any]
        if codes.dtype == np.int16:
            recoded = table[codes]
            return recoded
        if codes.dtype == np.int8:
            # As bytes: -1 is 255.
            table = np.concatenate([table, np.full(257 - len(table), -1, dtype=table.dtype)])
            codes = codes.view(np.uint8)
        recoded = _core.gather(table, codes)
        return recoded


def _check_size(size: int) -> int:
    try:
        size = operator.index(size)
    except TypeError:
        raise TypeError(f"size must be an int, not {type(size).__name__}") from None
    if size < 1:
        raise ValueError(f"size must be at least 1 event, not {size}")
    bytes_there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size * _COLUMNS * 8 > bytes_there:
        raise MemoryError(
            f"size={size} needs {size * _COLUMNS * 8} bytes, this machine has {bytes_there}"
        )
    return size


def _check_impl(impl: str) -> str:
    if impl not in _IMPLEMENTATIONS:
        raise ValueError(f"impl must be one of {_IMPLEMENTATIONS}, not {impl!r}")
    return impl


def _check_clean_file_name(clean: Callable[[str], str] | None) -> Callable[[str], str] | None:
    if clean is not None and not callable(clean):
        raise TypeError(f"clean_file_name must be callable or None, not {type(clean).__name__}")
    return clean


class EventProfiler:
    """Records calls, returns and allocations as rows, with cpyquickhelper's interface.

    Parameters
    ----------
    size : int, default 1000000
        How many events the ring holds between two copies. It does not limit the result: a full ring
        is emptied into it, and nothing is lost.
    impl : {'c', 'python', 'pybind11'}
        Accepted for compatibility: there is one implementation, and it is C.

    Raises
    ------
    TypeError, ValueError, MemoryError
        An argument is wrong; the message names it.

    See Also
    --------
    WithEventProfiler : The same as a ``with`` block.
    eventprof.record : The recorder of this package, with more events and tables.

    Notes
    -----
    It differs from the original, because it records more and disturbs programs less:

    - Calls are recorded on every thread, allocations in all three domains of the interpreter's
      allocator (raw, mem, obj). The original records calls of the thread that starts it, and raw.
    - Several profilers can run at a time, beside other tools too. Neither an exception nor a full
      ring ends the process. Only code objects are kept alive, no frame and no argument.
    - A ``c_return`` is named after the function that returned, not after the type of its result.
    - ``from_line`` is the line of the call, and ``from_name`` the caller of a C function, too.

    As there, a generator's resumption is a ``call`` and its yield a ``return``; a call that an
    exception ends has a ``return``, too. Rows of ``exception`` come from `log_event` alone.

    Examples
    --------
    >>> from eventprof import EventProfiler
    >>> prof = EventProfiler()
    >>> prof.start()
    >>> print(sum([1, 2, 3]))
    6
    >>> prof.stop()
    >>> df = prof.retrieve_results()
    >>> df[df.name == 'sum'].event.tolist()
    ['c_call', 'c_return']
    """

    _event_mapping: ClassVar[dict[str, int]] = {
        "call": 1,
        "return": 2,
        "c_call": 3,
        "c_return": 4,
        "exception": 5,
        "c_exception": 6,
        "profiler_call": 10,
        "profiler_return": 11,
        "profiler_start": 100,
        "profiler_sort": 101,
        "malloc": 1000,
        "calloc": 1001,
        "realloc": 1002,
        "free": 1003,
        "realloc_free": 1004,
    }

    def __init__(self, size: int = 1000000, impl: str = "c") -> None:
        self._size = _check_size(size)
        self._impl = _check_impl(impl)
        self._log = _core.LegacyLog(self._event_mapping)
        self._started = False
        self._lock = threading.Lock()  # protects retrieving while another thread stops
        self._recorder: _core.Recorder | None = None
        self._traces: list[_core.Trace] = []  # of ended windows, in order
        self._snapshot: _core.Trace | None = None  # of the running window, at the last copy
        self._logged = 0  # entries of _log at the last copy
        # Once for all windows: their rows stay in order when the wall clock is set meanwhile.
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    @property
    def n_columns(self) -> int:
        """Number of columns of `retrieve_raw_results`: 6."""
        return _COLUMNS

    @property
    def _buffer(self) -> SimpleNamespace | None:
        # The original's own benchmark logs through this.
        return None if self._impl == "c" else SimpleNamespace(c_log_event=self.log_event)

    def start(self) -> None:
        """Begin to record; results of earlier windows stay.

        Raises
        ------
        StateError
            The profiler is running. It is a RuntimeError, as in the original.
        """
        if self._started:
            raise _core.StateError(
                "this profiler is already running; stop it before it starts again"
            )
        self._started = True
        self._log.mark("profiler_start")
        # The last step, because later code would be recorded.
        self._begin()

    def stop(self) -> None:
        """End the window that `start` began, and put the interpreter's hooks back.

        Raises
        ------
        StateError
            The profiler is not running. It is a RuntimeError, as in the original.
        """
        if not self._started:
            raise _core.StateError("this profiler is not running; start it first")
        # The first step, because earlier code is recorded.
        self._end()
        self._started = False

    def _begin(self) -> None:
        try:
            self._recorder = _core.Recorder(kinds=_KINDS, on_full=_GROW)
            self._recorder.start()
        except BaseException:
            self._recorder = None
            self._started = False
            self._log.unmark()
            raise

    def _end(self) -> None:
        recorder = self._recorder
        assert recorder is not None
        recorder.stop()
        self._log.mark("profiler_sort")
        with self._lock:
            self._recorder = None
            self._snapshot = None
            self._logged = len(self._log)
            self._traces.append(recorder._capture())

    def log_event(self, frame: FrameType, event: str, arg: object) -> None:
        """Log an event, with the arguments of a callback of ``sys.setprofile``.

        Parameters
        ----------
        frame : frame
            The frame of the event: for ``call`` and ``return`` the callee's, for C calls the
            caller's.
        event : str
            A key of ``EventProfiler._event_mapping``.
        arg : object
            For C calls the function; otherwise it is ignored. It is not kept.

        Raises
        ------
        TypeError, ValueError
            `frame` is not a frame, or `event` is unknown.

        Notes
        -----
        The event has the current time, and is in the results in order of time. value1 and value2
        are 0. It can be logged at any time, also if the profiler is not running.
        """
        self._log.log(frame, event, arg)

    def _taken(self, empty_cache: bool) -> tuple[tuple[_core.Trace, ...], int, int]:
        """Return the parts of the rows: traces, offset of their clock, count of logged events."""
        with self._lock:
            if empty_cache:
                if self._recorder is not None:
                    self._snapshot = self._recorder._capture()
                self._logged = len(self._log)
            traces = (*self._traces, *([] if self._snapshot is None else [self._snapshot]))
            return traces, self._offset_ns, self._logged

    def retrieve_raw_results(self, empty_cache: bool = True) -> NDArray[np.int64]:
        """Return every event so far, in order of time, as plain integers.

        Parameters
        ----------
        empty_cache : bool, default True
            First copy the events since the last copy; stopping copies, too. False: only the events
            that were copied before.

        Returns
        -------
        ndarray of int64, shape (events, 6)
            ``id_frame``: in the upper 32 bits the thread (`threading.get_native_id`), in the lower
            the number of the Python function that is executing, 0 if there is none; equal for a
            call and its return. ``id_arg``: the number of the C function that is called, else 0.
            Both are -1 for the profiler's own two events. ``event``: see ``_event_mapping``.
            ``time``: ns since the epoch. ``value1``: the address of a block, else 0. ``value2``:
            its size; negative if the block is freed, and 0 if it was not allocated in this window.

        Warns
        -----
        RuntimeWarning
            Memory ran out while recording; says how many events are missing.

        Notes
        -----
        The rows are those of `retrieve_results`. Sums of ``value2`` are live bytes. Sizes are
        matched within a window: events between two windows are unknown.
        """
        raw, lost = self._log.raw(*self._taken(empty_cache))
        _warn_of_loss(lost)
        return raw.reshape(-1, _COLUMNS)

    def retrieve_results(
        self,
        empty_cache: bool = True,
        clean_file_name: Callable[[str], str] | None = None,
    ) -> pd.DataFrame:
        """Return every event so far, in order of time, with names and lines.

        Parameters
        ----------
        empty_cache : bool, default True
            As in `retrieve_raw_results`.
        clean_file_name : callable, optional
            Converts a file name for ``mod`` and ``from_mod``. It is called once for each name.

        Returns
        -------
        pandas.DataFrame
            - ``time``, ``value1``, ``value2`` (int64): as in `retrieve_raw_results`.
            - ``event``: a key of ``_event_mapping``.
            - ``name``, ``mod``: the function and its file; of a C function the qualified name and
              the module; of an allocation the Python function that is executing.
            - ``lineno`` (int64): the first line of the Python function that is executing, which
              for a C call is the caller.
            - ``from_name``, ``from_mod``, ``from_line`` (int64): the caller and the line of the
              call, or the function that allocated; '', '' and -1 if there is none.

            Texts are categorical, with the same categories for ``name`` and ``from_name``, and for
            ``mod`` and ``from_mod``. Unknown values are null. Surrogates, which a file name may
            have, are backslash escapes.

        Raises
        ------
        ModuleNotFoundError
            pandas is missing; the message says how to install it.
        TypeError
            `clean_file_name` is not callable, or does not return a str.

        Warns
        -----
        RuntimeWarning
            As in `retrieve_raw_results`.
        """
        clean = _check_clean_file_name(clean_file_name)
        pandas = require("pandas", "pandas", "retrieve_results()")
        (
            time_ns, event, value1, value2, first_line, line,
            name, mod, from_name, from_mod, names, files, lost,
        ) = self._log.frame(*self._taken(empty_cache))  # fmt: skip
        _warn_of_loss(lost)
        of_names = _Categories(names)
        of_files = _Categories(
            [
                _cleaned(clean, text) if clean is not None and is_file else text
                for text, is_file in files
            ]
        )

        def texts(codes: NDArray[Any], dtype: Any) -> Any:
            return pandas.Categorical.from_codes(codes, dtype=dtype, validate=False)

        events_dtype = pandas.CategoricalDtype(list(self._event_mapping))
        names_dtype = pandas.CategoricalDtype(of_names.texts)
        files_dtype = pandas.CategoricalDtype(of_files.texts)
        return pandas.DataFrame(
            {
                "time": time_ns,
                "value1": value1,
                "value2": value2,
                "event": texts(event, events_dtype),
                "name": texts(of_names.codes(name), names_dtype),
                "mod": texts(of_files.codes(mod), files_dtype),
                "lineno": first_line,
                "from_name": texts(of_names.codes(from_name), names_dtype),
                "from_mod": texts(of_files.codes(from_mod), files_dtype),
                "from_line": line,
            },
            copy=False,
        )


def _warn_of_loss(lost: int) -> None:
    if lost:
        warnings.warn(
            f"memory ran out while recording: {lost} events are not in the result",
            RuntimeWarning,
            stacklevel=3,
        )


def _code_type(categories: int) -> type[np.signedinteger[Any]]:
    """Return the integer type that pandas uses for so many categories; others would be copied."""
    if categories < np.iinfo(np.int8).max:
        return np.int8
    return np.int16 if categories < np.iinfo(np.int16).max else np.int32


def _cleaned(clean: Callable[[str], str], file: str) -> str:
    where = clean(file)
    if not isinstance(where, str):
        raise TypeError(f"clean_file_name must return a str, not {type(where).__name__}")
    return where


class EventProfilerDebug(EventProfiler):
    """An EventProfiler that records nothing by itself, to measure `EventProfiler.log_event`.

    ``start`` and ``stop`` only log their own two events; the interpreter is not touched.

    Examples
    --------
    >>> import sys
    >>> from eventprof import EventProfilerDebug
    >>> prof = EventProfilerDebug()
    >>> prof.start()
    >>> prof.log_event(sys._getframe(), 'call', None)
    >>> prof.stop()
    >>> prof.retrieve_results().event.tolist()
    ['profiler_start', 'call', 'profiler_sort']
    """

    def _begin(self) -> None:
        pass

    def _end(self) -> None:
        self._log.mark("profiler_sort")
        self._logged = len(self._log)


class WithEventProfiler:
    """Records the body of a ``with`` statement, also if an exception leaves it.

    Parameters
    ----------
    size, impl
        As in `EventProfiler`.
    clean_file_name : callable, optional
        As in `EventProfiler.retrieve_results`.

    Attributes
    ----------
    prof_ : EventProfiler or None
        The profiler of the latest ``with`` statement.

    Examples
    --------
    >>> from eventprof import WithEventProfiler
    >>> prof = WithEventProfiler(clean_file_name=lambda name: name.rpartition('/')[2])
    >>> with prof:
    ...     x = sorted('recorder')
    >>> prof.report.columns.tolist()[:4]
    ['time', 'value1', 'value2', 'event']
    >>> 'sorted' in set(prof.report.name)
    True
    """

    def __init__(
        self,
        size: int = 1000000,
        impl: str = "c",
        clean_file_name: Callable[[str], str] | None = None,
    ) -> None:
        self.size = _check_size(size)
        self.impl = _check_impl(impl)
        self.clean_file_name = _check_clean_file_name(clean_file_name)
        self.prof_: EventProfiler | None = None
        self._report: pd.DataFrame | None = None

    def __enter__(self) -> Self:
        if self.prof_ is not None and self.prof_._started:
            raise _core.StateError("this profiler is already running; leave its block first")
        prof = EventProfiler(size=self.size, impl=self.impl)
        self._report = None
        self.prof_ = prof
        prof.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        # The report is made when it is asked for, so that its errors cannot hide the body's
        # exception.
        if self.prof_ is not None and self.prof_._started:
            self.prof_.stop()
        return False

    @property
    def report(self) -> pd.DataFrame | None:
        """The latest events, as `EventProfiler.retrieve_results` gives them; None before the first.

        It is made when it is first asked for; inside of the body it has the events so far.
        """
        if self.prof_ is None or self._report is not None:
            return self._report
        report = self.prof_.retrieve_results(clean_file_name=self.clean_file_name)
        if not self.prof_._started:
            self._report = report
        return report

    # The original computes it under one name and shows it under the other.
    report_ = report
