"""Run a program in this process as ``python`` would run it; run.py records it.

This module does in Python what the interpreter does in C for a script, a module, ``-c`` or standard
input. So the program sees its own ``__main__``, ``sys.argv``, ``sys.path`` and ``sys.orig_argv``,
and ends as it would have: by its exception, its status or its signal. The program can still notice
the frames of eventprof below its own, and the modules that eventprof has imported.
"""

from __future__ import annotations

import builtins
import io
import os
import re
import sys
from collections.abc import Callable
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from importlib.util import MAGIC_NUMBER
from types import CodeType, ModuleType, TracebackType
from typing import Any, NamedTuple


def _cached() -> dict[str, None]:
    """Return the attributes that __main__ of a script has up to 3.15."""
    return {"__cached__": None} if sys.version_info < (3, 15) else {}


class Program(NamedTuple):
    """The program to run.

    Parameters
    ----------
    kind : {'script', 'module', 'code', 'stdin'}
        The way in which it was given.
    what : str
        The path, the module's name, the code, or ``-``.
    arguments : list of str
        The arguments of the program.
    joined : bool
        Whether an option and its value were one word, such as ``-mMODULE``.
    """

    kind: str
    what: str
    arguments: list[str]
    joined: bool = False

    @property
    def name(self) -> str:
        """A word for the program that can be part of a file's name."""
        if self.kind == "script":
            path = self.what.rstrip("/")
            stem = os.path.splitext(os.path.basename(os.path.abspath(path)))[0]
        else:
            stem = {"module": self.what, "code": "command"}.get(self.kind, self.kind)
        return "".join(c if c.isalnum() or c in "._-" else "_" for c in stem) or "program"


class NotFound(Exception):
    """The program cannot be read; the text says what the interpreter would say."""


class Launch:
    """A program that is found and compiled. None of its code has run.

    Parameters
    ----------
    program : Program
        The program to run.

    Raises
    ------
    NotFound
        The program cannot be read.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._error: BaseException | None = None
        self._steps: Callable[[dict[str, Any]], None] = self._run_code
        self._code: CodeType | None = None
        self._path: str | None = None
        self._names: dict[str, Any] = {}
        self._imported: tuple[str, bool] | None = None
        self._found = True
        getattr(self, f"_find_{program.kind}")()

    # ---- Finding it ----------------------------------------------------------------------------

    def _find_module(self) -> None:
        self._path = os.getcwd()
        self._imported = self._program.what, True

    def _find_code(self) -> None:
        self._path = ""
        source = self._program.what + "\n"
        self._compile(source, "<string>")
        if sys.version_info >= (3, 13) and self._code is not None:
            self._register(self._code, source)

    @staticmethod
    def _register(code: CodeType, source: str) -> None:
        """Make the source lines known to tracebacks, as 3.13 does for -c."""
        import linecache

        register: Callable[..., None] | None = getattr(linecache, "_register_code", None)
        if register is None:
            return
        # The first argument is a key of linecache's dictionary in 3.13, and the code in later
        # versions.
        first = code if hasattr(linecache, "_interactive_cache") else "<string>"
        register(first, source, "<string>")

    def _find_stdin(self) -> None:
        if sys.stdin is None or sys.stdin.isatty():
            raise NotFound(
                "standard input is a terminal: give a script, -m MODULE or -c CODE, or "
                "redirect a script into it"
            )
        self._path = ""
        self._names = {"__file__": "<stdin>", **_cached()}
        self._compile(sys.stdin.buffer.read(), "<stdin>")

    def _find_script(self) -> None:
        path = os.path.abspath(self._program.what)
        if _is_container(path):
            self._path = path
            self._imported = "__main__", False
            return
        try:
            with io.open_code(path) as file:
                content = file.read()
        except OSError as error:
            raise NotFound(
                f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}"
            ) from None
        # If the script is a link, sys.path has the directory of its target.
        self._path = os.path.dirname(os.path.realpath(self._program.what))
        loader: type[Any] = SourceFileLoader
        if content.startswith(MAGIC_NUMBER):
            import marshal

            loader = SourcelessFileLoader
            self._code = marshal.loads(content[16:])
        else:
            self._compile(_without_first_line(content), path)
        self._names = {
            "__file__": path,
            **_cached(),
            "__loader__": loader("__main__", path),
        }

    def _compile(self, source: str | bytes, name: str) -> None:
        try:
            self._code = compile(source, name, "exec", dont_inherit=True)
        except Exception as error:  # an error of the program: raised when the program is run
            self._error = error.with_traceback(None)

    # ---- Running it ----------------------------------------------------------------------------

    @property
    def starts(self) -> bool:
        """Whether there is anything to record.

        A script with a syntax error does not run. Nor does a module that does not exist, which is
        known after `prepare`.
        """
        return self._error is None and self._found

    def prepare(self) -> None:
        """Set up sys.argv, sys.path and __main__ as the program expects them."""
        given = len(sys.argv)
        program = self._program
        argv = {"script": program.what, "module": "-m", "code": "-c", "stdin": "-"}
        sys.argv[:] = [argv[program.kind], *program.arguments]
        sys.orig_argv[:] = [*_interpreter(sys.orig_argv, given), *self._command()]
        # With -P or -I the interpreter puts no folder at the front of sys.path.
        own = not sys.flags.safe_path
        if own:
            del sys.path[:1]
        if self._path is not None and (own or self._imported == ("__main__", False)):
            sys.path.insert(0, self._path)
        module = ModuleType("__main__")
        names = module.__dict__
        names.update(
            __package__=None,
            __loader__=BuiltinImporter,
            __spec__=None,
            **({"__annotations__": {}} if sys.version_info < (3, 14) else {}),
            __builtins__=builtins,
            **{name: value for name, value in self._names.items() if name != "__loader__"},
        )
        names.update(self._names)
        sys.modules["__main__"] = module
        self._main = names
        if self._imported == (program.what, True) and not _may_be_module(program.what):
            self._found = False
        if self._imported is not None:
            import runpy

            self._run_module_as_main = runpy._run_module_as_main  # type: ignore[attr-defined]
            self._steps = self._run_imported

    def _command(self) -> list[str]:
        program = self._program
        flag = {"module": ["-m"], "code": ["-c"]}.get(program.kind, [])
        if program.joined:
            return [f"{flag[0]}{program.what}", *program.arguments]
        return [*flag, program.what, *program.arguments]

    def run(
        self,
        begin: Callable[[], None],
        end: Callable[[], None] = lambda: None,
        show: Callable[..., object] = lambda hook, *error: hook(*error),
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Run the program.

        Parameters
        ----------
        begin : callable
            Called directly before the program's first line.
        end : callable
            Called when an exception has left the program, before the interpreter shows it.
        show : callable
            Called with the interpreter's own excepthook and its arguments, to show the exception.
        ended : callable
            Called first when the program has ended, by whatever.

        Raises
        ------
        BaseException
            An exception of the program. The caller must let it pass to the interpreter, which then
            ends as it would have without eventprof.
        """
        names = self._main
        try:
            begin()
            self._steps(names)
        except SystemExit:
            ended()
            raise
        except BaseException as error:
            ended()
            if getattr(sys, "excepthook", None) is sys.__excepthook__:
                end()
            _show_by_hook(error, _below(error.__traceback__), show)
            raise
        ended()
        if self._imported is None:  # as the interpreter does, before it waits for threads
            names.pop("__file__", None)
            names.pop("__cached__", None)

    def _run_code(self, names: dict[str, Any]) -> None:
        if self._error is not None:
            raise self._error
        assert self._code is not None
        exec(self._code, names)

    def _run_imported(self, names: dict[str, Any]) -> None:
        # The interpreter calls this function, too: tracebacks have its frames in any case.
        assert self._imported is not None
        self._run_module_as_main(*self._imported)


def _may_be_module(name: str) -> bool:
    """Whether a module of this name may exist: only the outermost package is looked for.

    No code of the program runs for this.
    """
    from importlib.util import find_spec

    try:
        return find_spec(name.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return True  # the interpreter will report the error


def _is_container(path: str) -> bool:
    """Whether a path is a directory or an archive from which modules can be imported."""
    for hook in sys.path_hooks:
        try:
            hook(path)
        except ImportError:
            continue
        return True
    return False


#: A pattern of the interpreter's options without a value, which may be joined in one word.
_LETTERS = "[bBdEhiIOPqRsSuvVx?]*"


def _without_first_line(content: bytes) -> bytes:
    """Leave out the first line if the interpreter has the option -x; lines keep their numbers."""
    words = iter(_interpreter(sys.orig_argv, len(sys.argv)))
    next(words, None)
    for word in words:
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(words, None)
        elif re.fullmatch(f"-{_LETTERS}", word) and "x" in word:
            end = content.find(b"\n")
            return content[end:] if end >= 0 else b""
    return content


def _interpreter(command: list[str], given: int) -> list[str]:
    """Return the interpreter and its options from a command line.

    Parameters
    ----------
    command : list of str
        ``sys.orig_argv``, such as ``[python, -X, dev, -m, eventprof, run, x.py]``.
    given : int
        The length of ``sys.argv``.
    """
    head = command[: len(command) - given + 1]  # to the word that sys.argv[0] stands for
    if len(head) < 2:
        return head
    apart = re.fullmatch(f"-({_LETTERS})m", head[-2]) if len(head) > 2 else None
    if apart is not None:  # -m eventprof, or -Im eventprof
        return [*head[:-2], *([f"-{apart[1]}"] if apart[1] else [])]
    joined = re.fullmatch(f"-({_LETTERS})m.+", head[-1])
    return [*head[:-1], *([f"-{joined[1]}"] if joined is not None and joined[1] else [])]


def _below(trace: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of this file at the beginning of a traceback."""
    here = _below.__code__.co_filename
    while trace is not None and trace.tb_frame.f_code.co_filename == here:
        trace = trace.tb_next
    return trace


def _show_by_hook(
    error: BaseException, trace: TracebackType | None, quietly: Callable[..., object]
) -> None:
    """Let the interpreter show an exception by the program's hook, without frames of eventprof."""
    hook = getattr(sys, "excepthook", None)
    if hook is None:  # the interpreter reports the missing hook
        return

    def show(kind: type[BaseException], value: BaseException, _: TracebackType | None) -> None:
        # The interpreter calls this once, when the exception has left all frames.
        sys.excepthook = hook
        value.__traceback__ = trace
        sys.last_traceback = trace
        try:
            if hook is sys.__excepthook__:
                quietly(hook, kind, value, trace)
            else:
                hook(kind, value, trace)
        except SystemExit:
            raise
        except BaseException as failed:
            assert failed.__traceback__ is not None
            failed.__traceback__ = failed.__traceback__.tb_next
            failed.__context__ = None if failed.__context__ is value else failed.__context__
            print("Error in sys.excepthook:", file=sys.stderr)
            sys.__excepthook__(type(failed), failed, failed.__traceback__)
            print("\nOriginal exception was:", file=sys.stderr)
            sys.__excepthook__(kind, value, trace)

    sys.excepthook = show
