"""Run a program and record it.

The program is run as python runs it: a script, a directory or archive with a __main__ module, a
module, code, or - for standard input. It sees its own arguments and ends as without eventprof, with
the same exit status. All threads are recorded, from the program's first line until the functions
that it registered with atexit have run.

The events go to a file while the program runs, so that they survive a crash. If the program has
child processes, each writes its own file into a folder NAME.epd, and the program's own file goes
there, too, at the end. Then a line on standard error says what was recorded and where it is.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import itertools
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from ..._words import printable
from ...base.arguments import SUFFIX
from ...files import family
from .. import options, refuse_unknown
from ..launch import Launch, NotFound, Program
from ..summary import summary

EXAMPLES = (
    ("eventprof run script.py argument", "the file is script-PID.epr"),
    ("eventprof run -o out.epr -m pytest tests", "a module, as python -m runs it"),
    ("eventprof run --no-memory --include 'mypackage.*' script.py", "only calls of one package"),
    ("eventprof run --buffer '500 MiB' script.py", "at most this much on disk: the newest events"),
    ("eventprof run --view script.py", "and open the page in the browser"),
    ("eventprof run --count script.py", "no file: calls and times by function, at the end"),
)

#: What `eventprof run --help` shows; --help-all shows all.
FIRST_OPTIONS = (
    "-m", "--output", "--force", "--view", "--report", "--count",
    "--no-memory", "--include", "--exclude", "--buffer",
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.usage = "eventprof run [OPTION...] SCRIPT | -m MODULE | -c CODE | -  [ARGUMENT...]"
    out = parser.add_argument_group("the file")
    out.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where the events go (NAME-%%p.epr, after the script or module); %%p is the process "
        "id, %%h the host's name; in a directory that exists, under the default name; NAME.epd is "
        "a folder with a file for each process",
    )
    out.add_argument("-f", "--force", action="store_true", help="replace an existing file")
    out.add_argument("-q", "--quiet", action="store_true", help="print no line at the end")
    out.add_argument(
        "--report", action="store_true", help="print the report at the end; on standard error"
    )
    out.add_argument(
        "--view",
        action="store_true",
        help="open the page of the recording in the browser at the end",
    )
    out.add_argument(
        "--count",
        action="store_true",
        help="count instead of recording; calls and times by function are printed on standard "
        "error at the end, or into the file of -o",
    )
    children = parser.add_argument_group("other processes")
    children.add_argument(
        "--follow-fork",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="record forked processes, each into its own file in the folder NAME.epd (on)",
    )
    children.add_argument(
        "--follow-exec",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="record Python programs that the program starts, too, by EVENTPROF in the environment "
        "(on; with --count and for --native's blocks off)",
    )
    options.add_options(parser.add_argument_group("what is recorded"))
    rest = parser.add_argument_group("the program")
    rest.add_argument("-m", metavar="MODULE", help="run a module, as python -m")
    rest.add_argument("-c", metavar="CODE", help="run code, as python -c")


def main(parser: argparse.ArgumentParser, given: Sequence[str]) -> int:
    """Record a program.

    Parameters
    ----------
    parser : ArgumentParser
        From `configure`.
    given : sequence of str
        Options of eventprof, then the program and its arguments.

    Returns
    -------
    int
        0 if the program came to its end. An exception of the program passes through.
    """
    own, program = split(parser, given)
    arguments, extra = parser.parse_known_args(own)
    if extra:
        refuse_unknown(parser, extra)
    if program is None:
        parser.error("no program: give a script, -m MODULE, -c CODE, or - for standard input")
    # Counting refuses --native later, and so does PyPy's recorder.
    if arguments.native and not arguments.count and sys.implementation.name != "pypy":
        _preload()
    recording = (Counting if arguments.count else Recording)(parser, arguments, program)
    try:
        launch = Launch(program)
    except NotFound as error:
        _give_up(str(error))
    if not launch.starts:
        launch.prepare()
        launch.run(lambda: None)
    _leave_out_launcher()
    launch.prepare()  # before the file is made: the file names the program's arguments
    if not launch.starts:
        launch.run(lambda: None)
    recording.open()
    atexit.register(
        recording.finish
    )  # registered before any function of the program, so that it runs last
    launch.run(recording.start, recording.end, options.show_error, options.hold_back_interrupts)
    return 0


def _leave_out_launcher() -> None:
    """Do not record the script that started this program, nor runpy, which runs modules."""
    if sys.implementation.name == "pypy":
        return
    import runpy

    from ... import _core

    _core.add_launcher_file(runpy.run_path.__code__.co_filename)
    main = sys.modules.get("__main__")
    script = getattr(main, "__file__", None)  # bin/eventprof
    if isinstance(script, str) and getattr(main, "__spec__", None) is None:
        _core.add_launcher_file(script)


def _preload() -> None:
    """Start this process again with the library in LD_PRELOAD, or exit with status 2."""
    from ... import Error
    from ...recording.native import run_preloaded

    try:
        run_preloaded()
    except (Error, OSError) as error:
        _give_up(str(error))


def split(
    parser: argparse.ArgumentParser, given: Sequence[str]
) -> tuple[list[str], Program | None]:
    """Separate eventprof's options from the program.

    Parameters
    ----------
    parser : ArgumentParser
        The parser, which knows which options take a value.
    given : sequence of str
        The options of eventprof, then the program and its arguments.

    Returns
    -------
    options : list of str
        The options of eventprof.
    program : Program or None
        The program; None if none was given.
    """
    known = parser._option_string_actions
    position = 0
    while position < len(given):
        word = given[position]
        rest = list(given[position + 1 :])
        if word == "--":
            return list(given[:position]), _program(rest)
        if word == "-" or not word.startswith("-") or word[:2] in ("-m", "-c"):
            return list(given[:position]), _program([word, *rest])
        if word.startswith("--"):
            action = known.get(word)  # with = the value is part of the word
            takes_next = action is not None and action.nargs != 0
        else:  # letters in one word: the first option with a value takes the rest of the word
            takes_next = False
            for index, letter in enumerate(word[1:], 2):
                action = known.get(f"-{letter}")
                if action is not None and action.nargs != 0:
                    takes_next = index == len(word)
                    break
        position += 2 if takes_next else 1
    return list(given), None


def _program(words: list[str]) -> Program | None:
    if not words:
        return None
    first, rest = words[0], words[1:]
    for flag, kind in (("-m", "module"), ("-c", "code")):
        if first.startswith(flag):
            if first != flag:
                return Program(kind, first[2:], rest, joined=True)
            return Program(kind, rest[0], rest[1:]) if rest else None
    return Program("stdin" if first == "-" else "script", first, rest)


def _unused(directory: str, name: str) -> str:
    """Return the default name of a recording: process ids come back, so it may be taken."""
    for number in itertools.count(1):
        ending = f"-{number}.epr" if number > 1 else ".epr"
        output = os.path.join(directory, name + ending)
        path = options.expanded(output)
        if not os.path.lexists(path) and not os.path.lexists(family.folder_of(path)):
            break
    return output


def _give_up(text: str) -> NoReturn:
    print(printable(f"eventprof run: {text}"), file=sys.stderr)
    sys.exit(2)


class Recording:
    """A recording of a program, from the options to the line at the end.

    Parameters
    ----------
    parser : ArgumentParser
        Reports wrong options.
    arguments : Namespace
        The options of eventprof.
    program : Program
        The program, which gives the file its default name.
    """

    def __init__(
        self, parser: argparse.ArgumentParser, arguments: argparse.Namespace, program: Program
    ) -> None:
        self._arguments = arguments
        self._process = os.getpid()
        output = arguments.output
        self._is_named = output is not None
        if output is None:
            output = _unused("", f"{program.name}-%p")
        elif os.path.isdir(output) and not output.endswith(SUFFIX):
            output = _unused(output.replace("%", "%%"), f"{program.name}-%p")
            self._is_named = False
        self._output = options.absolute(output)
        self._folder: str | None = None
        # With %p the user has named the file of each process; PyPy's recorder has no folders.
        names_each = arguments.output is not None and "%p" in arguments.output.replace("%%", "")
        is_folder = self._output.endswith(SUFFIX)
        if sys.implementation.name != "pypy" and (is_folder or not names_each):
            self._folder = family.folder_of(options.expanded(self._output))
            if is_folder:
                self._output = family.member_pattern(self._folder)
        try:
            self._options = options.from_arguments(arguments)
        except ValueError as error:
            parser.error(f"--{error}")
        self.recorder: Any = None
        self._replaced: list[str] = []
        # Imported before the program, which may remove modules.
        self._gather: Any = None
        self._report: Any = None
        self._view: Any = None
        if arguments.view and sys.implementation.name == "pypy":
            parser.error(
                "--view: the page cannot be made on PyPy; open the file with 'eventprof view FILE' "
                "on CPython"
            )

    def open(self) -> None:
        """Make the recorder and its file; exit with status 2 if that is not possible."""
        from ... import Error

        try:
            if self._folder is not None:
                from ..gathering import gather

                self._gather = gather
                self._replaced = family.replaced(self._folder, self._arguments.force)
            self.recorder = options.make_recorder(
                self._options, self._output, self._arguments.force, self._folder
            )
        except (Error, OSError, TypeError, ValueError, MemoryError) as error:
            _give_up(options.explain(error, self._output))
        self.recorder._warns = False  # summary() tells about lost events
        if self._arguments.report:
            if sys.implementation.name == "pypy":
                from ..._pypy.report import report as report_text

                self._report = report_text
            else:
                from ...show.report import report

                self._report = report
        if self._arguments.view:
            import webbrowser  # noqa: F401 - imported now, like the report above

            from ... import viewer

            viewer.load()
            self._view = viewer.open_page
        if not self._arguments.follow_fork:
            os.register_at_fork(after_in_child=self._leave_child)
        follows = self._arguments.follow_exec is not False
        if self._folder is not None and self.recorder.options.on_full != "grow":
            from ...files import quota

            # Who gave a limit knows it.
            warns = "buffer" not in self._options and not self._arguments.quiet
            quota.begin(self.recorder.options.limit_bytes, warns=warns, export=follows)
        if follows:
            self._follow_exec()

    def _follow_exec(self) -> None:
        """Let the Python programs that the program starts be recorded, as options say."""
        from .. import environment

        given = dict(self._options)
        if given.get("native") and self._arguments.follow_exec:
            from ...recording.native import enter_environment

            enter_environment()
        else:
            given.pop("native", None)  # it needs a library in every process, of Python or not
        if self._folder is not None:
            environment.export(given, self._folder.replace("%", "%%"))
            return
        stem, extension = os.path.splitext(self._output)
        beside = self._output if "%p" in self._output else f"{stem}-%p{extension}"
        environment.export(given, beside)

    def start(self) -> None:
        """Start to record; exit with status 2 if the file cannot be made."""
        from ... import Error

        try:
            self.recorder.start()
            for path in self._replaced:  # now that this run is recorded
                os.unlink(path)
        except (Error, OSError, MemoryError) as error:
            atexit.unregister(self.finish)
            _give_up(options.explain(error, self._output))
        self._own_path = self.recorder.output
        options.leave_out_errors_of_threads()

    def end(self) -> None:
        """Stop at an exception that ends the program, if its printing cannot be left out (PyPy)."""
        if sys.implementation.name == "pypy" and not options.others_run():
            self.recorder.stop()

    def _leave_child(self) -> None:
        """Drop the recording of a forked child, and its file."""
        recorder = self.recorder
        if recorder.state == "running":
            recorder.stop()
            if recorder.output != self._own_path:
                with contextlib.suppress(OSError):
                    os.unlink(recorder.output)
                    if self._folder is not None:
                        os.rmdir(self._folder)  # unless it has other recordings

    def finish(self) -> None:
        """Stop, and print the line at the end; atexit calls this last."""
        with options.NotInterrupted():
            self._finish()

    def _finish(self) -> None:
        recorder = self.recorder
        if recorder.state == "running":
            recorder.stop()
        if os.getpid() != self._process:  # a forked child, which ends like its parent
            return
        folder = self._folder
        # The program may have put anything in place of sys.stderr.
        stream = sys.__stderr__
        try:
            if folder is not None and family.is_one(folder):
                text = self._gather(folder, recorder, keep=self._is_named)
            else:
                folder = None
                text = [summary(recorder)]
            if not self._arguments.quiet and stream is not None:
                print("\n".join(text), file=stream, flush=True)
            if self._arguments.report and stream is not None:
                self._report(self._trace(folder), stream)
                stream.flush()
            if self._view is not None:
                page = self._view(self._trace(folder))
                if not self._arguments.quiet and stream is not None:
                    print(f"eventprof: the page is {page}", file=stream, flush=True)
        except (OSError, ValueError):
            pass  # the reader of standard error is gone
        except (
            Exception
        ) as error:  # the file is complete; a traceback would look like the program's
            with contextlib.suppress(OSError, ValueError):
                print(f"eventprof: {self._output}: {error}", file=stream)

    def _trace(self, folder: str | None) -> Any:
        if folder is None:
            return self.recorder.trace
        import eventprof

        return eventprof.open(folder)


class Counting:
    """The counts of a program; it has the methods of `Recording`.

    Parameters
    ----------
    parser : ArgumentParser
        Reports wrong options.
    arguments : Namespace
        The options of eventprof.
    program : Program
        Not used.
    """

    def __init__(
        self, parser: argparse.ArgumentParser, arguments: argparse.Namespace, program: Program
    ) -> None:
        self._arguments = arguments
        self._process = os.getpid()
        self._path = None if arguments.output is None else options.absolute(arguments.output)
        if self._path is not None and os.path.isdir(self._path):
            parser.error("--count: -o names a file, not a directory")
        if arguments.archive:
            parser.error("--count: nothing is recorded, so there is nothing for --archive to pack")
        if arguments.view:
            parser.error("--count: nothing is recorded, so there is nothing for --view to show")
        if arguments.output is not None and arguments.output.endswith(SUFFIX):
            parser.error("--count: -o names a file, not a folder of recordings")
        try:
            self._options = options.from_arguments(arguments)
            options.check_counted(self._options)
        except ValueError as error:
            parser.error(f"--{error}")
        self._counter: Any = None
        self._ended = False

    def open(self) -> None:
        """Make the counter; exit with status 2 if that is not possible."""
        from ... import Error
        from ...base import output

        try:
            if self._path is not None:
                output.check(options.expanded(self._path), self._arguments.force)
        except OSError as error:
            _give_up(options.explain(error, self._path or ""))
        try:
            self._counter = options.make_counter(self._options)
        except (Error, TypeError, ValueError) as error:
            _give_up(str(error))
        if not self._arguments.follow_fork:
            os.register_at_fork(after_in_child=self._counter_stop)
        if self._arguments.follow_exec:
            from .. import environment

            environment.export_counting(self._options, self._path)

    def start(self) -> None:
        """Start to count; exit with status 2 if no hook is free."""
        from ... import Error

        try:
            self._counter.start()
        except (Error, MemoryError) as error:
            atexit.unregister(self.finish)
            _give_up(str(error))

    def end(self) -> None:
        """Stop at an exception that ends the program; the report comes at exit."""
        if self._counter.state == "running" and not options.others_run():
            self._counter.stop()
            self._ended = True

    def _counter_stop(self) -> None:
        if self._counter.state == "running":
            self._counter.stop()

    def finish(self) -> None:
        """Stop, and write the report; atexit calls this last."""
        with options.NotInterrupted():
            self._finish()

    def _finish(self) -> None:
        if self._counter.state != "running" and not self._ended:
            return
        if self._counter.state == "running":
            self._counter.stop()
        forked = os.getpid() != self._process
        if forked and "%p" not in (self._path or ""):
            return
        if self._path is None and self._arguments.quiet:
            return
        try:
            options.write_counts(self._counter, self._path, self._arguments.force)
        except (OSError, ValueError) as error:
            if self._path is not None and sys.__stderr__ is not None:
                text = options.explain(error, self._path)
                with contextlib.suppress(OSError, ValueError):
                    print(printable(f"eventprof: {text}; no counts are kept"), file=sys.__stderr__)
