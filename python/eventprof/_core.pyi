"""The extension: the recorder, the trace that it yields, and helpers of the package."""

from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, Literal, Self, TypedDict, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: The words of the areas of functions, by their numbers.
AREAS: tuple[str, ...]
WAIT_WORDS: tuple[str, ...]
WAIT_OBJECTS: tuple[str, ...]
SITES_USABLE: int
VERSION: str

class Error(Exception): ...
class StateError(Error, RuntimeError): ...
class ToolInUseError(Error, RuntimeError): ...
class FormatError(Error, ValueError): ...
class UnsupportedError(Error, RuntimeError): ...

class Span:
    """A context manager and decorator; made by `eventprof.span`."""

    @property
    def name(self) -> str: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> Literal[False]: ...
    def __call__(self, function: _Function) -> _Function: ...

def mark(name: str, /) -> None: ...
def counter(name: str, value: float, /) -> None: ...
def flow(name: str, id: int, phase: Literal["begin", "step", "end"], /) -> None: ...
def span(name: str, /) -> Span: ...
def wrapped_span(name: str, apart: bool, /) -> Span: ...
def records_labels() -> bool: ...
def label(**labels: object) -> Label: ...

class Label:
    """A context manager and decorator; made by `eventprof.label`."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> Literal[False]: ...
    def __call__(self, function: _Function) -> _Function: ...
    def add(self, **labels: object) -> None: ...

class Recorder:
    """A window on the engine. Arguments are not checked here; see recording/record.py."""

    def __new__(
        cls,
        *,
        kinds: int = ...,
        limit_bytes: int = ...,
        on_full: int = ...,
        backend: str = ...,
        clock: str = ...,
        current_thread: bool = ...,
        include: tuple[str, ...] = ...,
        exclude: tuple[str, ...] = ...,
        output: bytes = ...,
        child_output: bytes = ...,
        metadata: bytes = ...,
        replace: bool = ...,
        packs: bool = ...,
        max_depth: int = ...,
        min_duration_ns: int = ...,
        audit: tuple[str, ...] = ...,
    ) -> Self: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> Literal[False]: ...
    def _begin(self) -> bool: ...
    def _capture(self, last_ns: int = -1, /) -> Trace: ...
    def _count(self) -> tuple[int, int, str | None, int]: ...
    def _held(self) -> tuple[int, int, int, int]: ...
    @property
    def _children_lost(self) -> tuple[int, str] | None: ...
    @property
    def _windows(self) -> int: ...
    @property
    def state(self) -> Literal["new", "running", "stopped"]: ...
    @property
    def backend(self) -> str | None: ...
    @property
    def clock(self) -> str | None: ...
    @property
    def output(self) -> str | None: ...
    @property
    def displaced(self) -> tuple[str, ...]: ...

_CountRow = tuple[
    str | None,
    str | None,
    str | None,
    int,
    str,
    int,
    int,
    int,
    int,
    int,
    int,
    float,
    int,
    int,
    int,
    int,
]

class Counter:
    """A counter of the core. Arguments are not checked here; see recording/counting.py."""

    def __new__(
        cls,
        *,
        calls: bool = ...,
        c_calls: bool = ...,
        domains: int = ...,
        include: tuple[str, ...] = ...,
        exclude: tuple[str, ...] = ...,
        current_thread: bool = ...,
    ) -> Self: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> Literal[False]: ...
    def _begin(self) -> bool: ...
    def _read(self) -> tuple[list[_CountRow], _CountRow, int, int, int]: ...
    def _bytes(self) -> int: ...
    def _frequency(self) -> float: ...
    def _set_trace_functions(self, on_enter: object, on_exit: object) -> None: ...
    @property
    def _windows(self) -> int: ...
    @property
    def state(self) -> Literal["new", "running", "stopped"]: ...
    @property
    def displaced(self) -> bool: ...

class _Facts(TypedDict):
    duration_ns: int
    start_monotonic_ns: int
    start_realtime_ns: int
    clock_frequency_hz: float
    full: str | None
    damaged_chunks: int
    filtered: int
    functions_off: int
    deep_calls: int
    short_calls: int
    kinds: int
    events: int

class _Glance(TypedDict):
    duration_ns: int
    kinds: int
    threads: list[tuple[str | None, int, int, int, dict[int, int], dict[int, int]]]

class _FileInfo(TypedDict):
    format: str
    version: tuple[int, int]
    writer: str
    codec: str
    bytes: int
    events: int
    events_written: int
    damaged: int
    damage: str | None
    unfinished: bool
    unknown_events: int
    unknown_kinds: str
    sections: dict[str, tuple[int, int, int, int]]

# Columns by type; written by tools/pages/columns_stub.py.
_EventsInt64 = Literal[
    "time",
    "size",
]
_EventsUint8 = Literal[
    "event",
    "kind",
]
_EventsInt32 = Literal[
    "thread",
    "function",
    "name",
    "line",
    "depth",
    "caller",
    "caller_line",
    "offset",
    "opcode",
    "call",
]
_EventsUint64 = Literal[
    "address",
    "word",
]
_EventsInt8 = Literal["domain"]
_EventsFloat64 = Literal["value"]
_EventsUint32 = Literal["id"]
_CallsInt64 = Literal[
    "start",
    "duration",
    "self",
    "waited",
    "allocated",
    "allocated_self",
    "freed",
    "freed_self",
]
_CallsInt32 = Literal[
    "thread",
    "function",
    "name",
    "file",
    "line",
    "depth",
    "parent",
    "caller",
    "caller_line",
    "blocks",
    "blocks_self",
    "task",
]
_CallsUint8 = Literal[
    "kind",
    "flags",
]
_AllocationsUint64 = Literal["address"]
_AllocationsInt64 = Literal[
    "size",
    "start",
    "end",
]
_AllocationsUint8 = Literal[
    "domain",
    "flags",
]
_AllocationsInt32 = Literal[
    "thread",
    "call",
    "function",
    "name",
    "line",
    "freed_in",
    "free_thread",
    "previous",
]
_AllocationsUint32 = Literal[
    "birth",
    "death",
]
_LinesInt32 = Literal[
    "function",
    "name",
    "file",
    "line",
]
_LinesInt64 = Literal[
    "hits",
    "total",
    "self",
    "allocated",
    "blocks",
]
# End of columns.

class Trace:
    """What one window recorded; made by Recorder._capture() or open_archive()."""

    # By column; written by it, too.
    @overload
    def events(
        self, column: _EventsInt64, first: int = 0, count: int = ..., /
    ) -> NDArray[np.int64]: ...
    @overload
    def events(
        self, column: _EventsUint8, first: int = 0, count: int = ..., /
    ) -> NDArray[np.uint8]: ...
    @overload
    def events(
        self, column: _EventsInt32, first: int = 0, count: int = ..., /
    ) -> NDArray[np.int32]: ...
    @overload
    def events(
        self, column: _EventsUint64, first: int = 0, count: int = ..., /
    ) -> NDArray[np.uint64]: ...
    @overload
    def events(
        self, column: _EventsInt8, first: int = 0, count: int = ..., /
    ) -> NDArray[np.int8]: ...
    @overload
    def events(
        self, column: _EventsFloat64, first: int = 0, count: int = ..., /
    ) -> NDArray[np.float64]: ...
    @overload
    def events(
        self, column: _EventsUint32, first: int = 0, count: int = ..., /
    ) -> NDArray[np.uint32]: ...
    @overload
    def events(self, column: str, first: int = 0, count: int = ..., /) -> NDArray[Any]: ...
    @overload
    def calls(
        self, column: _CallsInt64, first: int = 0, count: int = ..., /
    ) -> NDArray[np.int64]: ...
    @overload
    def calls(
        self, column: _CallsInt32, first: int = 0, count: int = ..., /
    ) -> NDArray[np.int32]: ...
    @overload
    def calls(
        self, column: _CallsUint8, first: int = 0, count: int = ..., /
    ) -> NDArray[np.uint8]: ...
    @overload
    def calls(self, column: str, first: int = 0, count: int = ..., /) -> NDArray[Any]: ...
    @overload
    def allocations(
        self, column: _AllocationsUint64, first: int = 0, count: int = ..., /
    ) -> NDArray[np.uint64]: ...
    @overload
    def allocations(
        self, column: _AllocationsInt64, first: int = 0, count: int = ..., /
    ) -> NDArray[np.int64]: ...
    @overload
    def allocations(
        self, column: _AllocationsUint8, first: int = 0, count: int = ..., /
    ) -> NDArray[np.uint8]: ...
    @overload
    def allocations(
        self, column: _AllocationsInt32, first: int = 0, count: int = ..., /
    ) -> NDArray[np.int32]: ...
    @overload
    def allocations(
        self, column: _AllocationsUint32, first: int = 0, count: int = ..., /
    ) -> NDArray[np.uint32]: ...
    @overload
    def allocations(self, column: str, first: int = 0, count: int = ..., /) -> NDArray[Any]: ...
    @overload
    def lines(
        self, column: _LinesInt32, first: int = 0, count: int = ..., /
    ) -> NDArray[np.int32]: ...
    @overload
    def lines(
        self, column: _LinesInt64, first: int = 0, count: int = ..., /
    ) -> NDArray[np.int64]: ...
    @overload
    def lines(self, column: str, first: int = 0, count: int = ..., /) -> NDArray[Any]: ...
    # End of methods by column.
    def functions(self) -> list[tuple[str | None, str | None, str | None, int | None, str]]: ...
    def threads(
        self,
    ) -> list[tuple[str | None, int, int, int, dict[int, int], dict[int, int]]]: ...
    def facts(self) -> _Facts: ...
    def start(self) -> tuple[int, int]: ...
    def probe(self) -> None: ...
    def save(self, fd: int, metadata: bytes, /) -> None: ...
    def set_processes(self, threads: tuple[int, ...], /) -> None: ...
    def pair(self) -> None: ...
    def pairing(self) -> dict[str, int]: ...
    def filter(
        self,
        include: tuple[str, ...],
        exclude: tuple[str, ...],
        max_depth: int,
        min_duration_ns: int,
        audit: tuple[str, ...],
        /,
    ) -> None: ...
    def trim(
        self, from_ns: int, until_ns: int, threads: tuple[int, ...], kinds: int, /
    ) -> None: ...
    def label_values(self) -> list[bytes]: ...
    def tasks(self) -> dict[int, bytes]: ...
    def replace_texts(
        self,
        functions: list[tuple[str | None, str | None, str | None, int | None, str]],
        tasks: dict[int, bytes],
        labels: list[bytes],
        threads: list[bytes | None],
        /,
    ) -> None: ...
    def file_facts(self) -> dict[str, Any]: ...
    def resident(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...
    def curve(self, domains: int, /) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...
    def bins(
        self, domains: int, count: int, /
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]: ...
    def peak(self, domains: int, /) -> tuple[int, int, int, int]: ...
    def moment(self, time: int, /) -> int: ...
    def alive(self, moment: int, by: str, /) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...
    def temporary(self, by: str, /) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...
    def stacks(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...
    def tree(
        self,
        max_nodes: int,
        has_lock: bool,
        with_lengths: bool = False,
        by_thread: bool = False,
        /,
    ) -> dict[str, Any]: ...
    def has_columns(self) -> bool: ...
    def lost(self) -> int: ...
    def tenures(self) -> dict[str, NDArray[Any]]: ...
    def picked(
        self,
        functions: bytes,
        blocking: bytes,
        own: bytes | None,
        without: int,
        kept_ns: int,
        function: int,
        line: int,
        /,
    ) -> tuple[
        dict[str, NDArray[Any]],  # by column: calls
        dict[str, NDArray[Any]],  # by column: sums by function
        tuple[int, int, int, int],  # live blocks of the line
    ]: ...
    def survey(self) -> None: ...
    def rows(
        self,
        start: int,
        end: int,
        kinds: int,
        functions: bytes | None,
        threads: bytes | None,
        columns: tuple[str, ...],
        take: Callable[[dict[str, NDArray[Any]]], bool],
        new_functions: list[tuple[int, str | None, str | None, str | None]] | None = ...,
        own: bytes | None = ...,
        /,
    ) -> None: ...
    def glance(self) -> _Glance | None: ...
    def file_damage(self) -> int: ...
    def sites(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...
    def verify(
        self,
        limit: int,
        filtered: bool,
        one_thread: bool,
        hook_frees: bool,
        calls_displaced: bool,
        memory_displaced: bool,
        /,
    ) -> tuple[
        dict[str, int],  # by word: all that was found
        dict[str, int],  # excused
        list[tuple[str, int | None, int | None, int, int, int | None, int, int, int]],
        tuple[int, int] | None,  # records and chunks that were looked at
    ]: ...

def column_table() -> list[tuple[str, str, str, str, str, str, str, str, str]]: ...
def fault_table() -> list[tuple[str, str]]: ...

# Widths, rows and how many low bits are apart; the low bits, planes of times and other planes.
_Planes = tuple[tuple[list[int | list[int]], int, list[int]], tuple[bytes, bytes, bytes]]

class PageData:
    """What the page in the browser has of a trace; tiles can be made on several threads."""

    def __new__(
        cls,
        trace: Trace,
        own: bytes,
        codes: bytes,
        grain: int,
        tile: int,
        group: int,
        duration: int,
        /,
    ) -> Self: ...
    def counts(self) -> tuple[int, int, int]: ...
    def peak(self) -> tuple[int, int, int]: ...
    def rows(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]: ...
    def order(self) -> NDArray[Any]: ...
    def place(self, call: int, /) -> int: ...
    def usual(self) -> NDArray[Any]: ...
    def coarse(self) -> tuple[NDArray[Any], ...]: ...
    def orphans(self) -> tuple[NDArray[Any], NDArray[Any]]: ...
    def has_tasks(self) -> bool: ...
    def set_tasks(self, tasks: NDArray[np.int32], /) -> None: ...
    def longest(self, wanted: Sequence[tuple[int, int, int]], /) -> list[int]: ...
    def held(self, by: int, /) -> tuple[NDArray[Any], NDArray[Any]]: ...
    def places(self) -> tuple[NDArray[Any], NDArray[Any]]: ...
    def charges(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...
    def set_bands(self, by: int, holders: NDArray[np.int64], /) -> None: ...
    def curve(self, by: int, /) -> NDArray[Any]: ...
    def call_tile(self, number: int, /) -> tuple[_Planes, list[int], list[int], bool]: ...
    def block_tile(
        self, number: int, /
    ) -> tuple[_Planes, int, int, tuple[NDArray[Any], NDArray[Any]]]: ...

class LegacyLog:
    """What the user of the drop-in logs himself, and the rows of that and of traces."""

    def __new__(cls, words: dict[str, int], /) -> Self: ...
    def __len__(self) -> int: ...
    def log(self, frame: FrameType, event: str, arg: object, /) -> None: ...
    def mark(self, event: str, /) -> None: ...
    def unmark(self) -> None: ...
    def raw(
        self, traces: tuple[Trace, ...], offset_ns: int, logged_count: int, /
    ) -> tuple[NDArray[np.int64], int]: ...
    def frame(
        self, traces: tuple[Trace, ...], offset_ns: int, logged_count: int, /
    ) -> tuple[
        NDArray[np.int64],  # time
        NDArray[np.int8],  # event
        NDArray[np.int64],  # value1
        NDArray[np.int64],  # value2
        NDArray[np.int64],  # first line
        NDArray[np.int64],  # line of the call
        NDArray[Any],  # codes: name
        NDArray[Any],  # mod
        NDArray[Any],  # from_name
        NDArray[Any],  # from_mod
        list[str],  # names
        list[tuple[str, bool]],  # files and modules; whether it is a file of Python code
        int,  # lost
    ]: ...

_Field = tuple[
    str,  # name
    NDArray[Any],  # values, or the indices of a dictionary
    NDArray[np.bool_] | None,  # where there is none
    bool,  # nullable
    tuple[NDArray[np.int32], bytes] | None,  # a dictionary: offsets, UTF-8
]

def arrow_schema(fields: list[_Field], rows: int, /) -> Any: ...
def arrow_stream(fields: list[_Field], rows: int, /) -> Any: ...
def added_columns() -> list[str]: ...
def tree_below(parent: NDArray[Any], values: NDArray[Any], /) -> NDArray[Any]: ...
def tree_outermost(parent: NDArray[Any], keys: NDArray[Any], /) -> NDArray[Any]: ...
def new_column(count: int, type: str, /) -> NDArray[Any]: ...
def give_back() -> int: ...
def columns_in_memory(bytes: int, /) -> int: ...
def columns_have_files() -> bool: ...
def gather(
    table: NDArray[np.signedinteger[Any]], indices: NDArray[Any], /
) -> NDArray[np.signedinteger[Any]]: ...

_Buffer = NDArray[Any] | bytes | bytearray
_Part = bytes | tuple[Any, ...]

def make_trace(
    functions: list[tuple[str | None, str | None, str | None, int | None, str]],
    sites: list[tuple[int, int, int]],
    threads: list[tuple[bytes | None, int]],
    columns: tuple[_Buffer, _Buffer, _Buffer, _Buffer, _Buffer, _Buffer],
    facts: tuple[int, int, int, int, int],
    /,
) -> Trace: ...
def render_rows(rows: int, parts: tuple[_Part, ...], /) -> bytes: ...
def nest_calls(
    parent: _Buffer, calls: _Buffer | None, row: int, top: int, room: int, /
) -> tuple[bytearray, int, int]: ...
def mark_inner_calls(parent: _Buffer, marks: _Buffer, /) -> None: ...
def number_marked_calls(parent: _Buffer, marks: _Buffer, /) -> NDArray[np.int32]: ...
def depths_of_calls(parent: _Buffer, /) -> NDArray[np.int32]: ...
def calls_by_thread(thread: _Buffer, threads: int, /) -> tuple[NDArray[np.int32], bytearray]: ...
def fold_calls(
    parent: _Buffer, key: _Buffer, /
) -> tuple[NDArray[np.int32], bytearray, bytearray]: ...
def collapsed_stacks(
    parent: _Buffer, weight: _Buffer, code: _Buffer, offsets: _Buffer, texts: _Buffer, row: int, /
) -> tuple[bytes, int]: ...
def pprof_samples(
    parent: _Buffer,
    own: _Buffer,
    caller: _Buffer,
    values: _Buffer,
    columns: int,
    code: _Buffer,
    offsets: _Buffer,
    texts: _Buffer,
    row: int,
    /,
) -> tuple[bytes, int]: ...
def speedscope_events(
    steps: _Buffer,
    start: _Buffer,
    duration: _Buffer,
    function: _Buffer,
    offsets: _Buffer,
    texts: _Buffer,
    last_ns: int,
    /,
) -> tuple[bytes, int]: ...
def recursion(parent: _Buffer, key: _Buffer, first: _Buffer, /) -> tuple[bytearray, bytearray]: ...
def perfetto_slices(
    steps: _Buffer,
    start: _Buffer,
    duration: _Buffer,
    function: _Buffer,
    site: _Buffer,
    unknown: int,
    sequence: int,
    depth: int,
    depth_max: int,
    last_ns: int,
    /,
) -> tuple[bytes, int, int, int]: ...
def perfetto_counters(
    time: _Buffer, value: _Buffer, sequence: int, last_ns: int, /
) -> tuple[bytes, int]: ...
def add_area(word: str, folders: tuple[str, ...], modules: tuple[str, ...], /) -> None: ...
def function_areas(
    functions: list[tuple[str | None, str | None, str | None, int | None, str]],
    patterns: tuple[str, ...],
    /,
) -> bytes: ...
def match_functions(
    functions: list[tuple[str | None, str | None, str | None, int | None, str]],
    patterns: tuple[str, ...],
    /,
) -> bytes: ...
def add_launcher_file(path: str, /) -> None: ...
def call_beside(function: Callable[..., Any], /, *args: object) -> Any: ...
def call_muted(function: Callable[..., object], /, *args: object) -> object: ...
def set_own_directory(path: str, /) -> None: ...
def name_thread(native_id: int, name: str, /) -> None: ...
def name_worker(name: str, /) -> None: ...
def worker() -> str | None: ...
def set_opcode_names(names: tuple[str, ...], /) -> None: ...
def engine_stats() -> dict[str, int]: ...
def program_lives(native_ids: tuple[int, ...], /) -> bool: ...
def resident_bytes() -> int: ...
def share_quota(descriptor: int, limit_bytes: int, warns: bool, /) -> None: ...
def merge(parts: Sequence[tuple[Trace, int, int, str]], /) -> Trace: ...
def open_log(descriptor: int, path: str, /) -> tuple[Trace, bytes, int]: ...
def open_archive(fd: int, path: str, /) -> tuple[Trace, bytes | None, _FileInfo]: ...
def text(number: int, /) -> str | None: ...
def native_available() -> bool: ...
def waits_available() -> bool: ...
def kind_table() -> Sequence[tuple[int, str, str, int, str, str | None, str, str, str]]: ...
def source_table() -> list[tuple[str, int, str]]: ...
