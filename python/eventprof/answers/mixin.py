"""The attributes of a trace that are answered from one pass over its events; a base of `Trace`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ..trace import Trace
    from ..trace.table import Table
    from .findings import Finding
    from .tree import Tree


class Answers:
    """The tree of calls, own code, who held the interpreter's lock."""

    _own_patterns: tuple[str, ...] | None = None

    @property
    def has_lock(self) -> bool:
        """Whether the recorded interpreter had a global lock, the GIL; a process has its own."""
        return cast("Trace", self)._has_lock

    @cached_property
    def _tree(self) -> Tree:
        from .tree import Tree

        return Tree(cast("Trace", self))

    @cached_property
    def tree(self) -> Table:
        """The calling-context tree: calls, time and bytes by path of calls.

        Returns
        -------
        Table
            Row 0 is the root, the sum of all threads; parents come before their children. ``node``
            and ``parent`` int32, rows of this table; ``depth`` int32. ``function`` int32, row of
            `functions`; ``name``, ``file`` text and ``line`` int32, its first line;
            ``caller_file`` text and ``caller_line`` int32: where it was called. ``calls`` and
            ``resumes`` int64, begun in the window; ``raised``, those that an exception ended.
            ``total``, ``self``, ``waited``, ``waited_self`` int64, ns. The last two are the parts
            of the first two in which another thread had the interpreter's lock; they are null for
            an interpreter without a lock. ``longest`` and ``shortest`` int64, ns, of calls whose
            begin and end were recorded. ``allocated``, ``blocks``, ``live`` (at the end),
            ``at_peak`` and ``temporary`` int64, of the node and all nodes below it; a name that
            ends with ``_self`` is of the node alone. ``freed_self``: bytes that the node freed,
            whichever node allocated them.

        Notes
        -----
        A node is a function, its caller and the line of the call, below its parent; all threads
        share the tree. A file is read chunk by chunk, without making its columns. Above a million
        nodes the smallest become one child "other" of the node above them.
        """
        from .table import tree_table

        return tree_table(cast("Trace", self), self._tree)

    @cached_property
    def gil(self) -> Table:
        """Which thread held the interpreter's lock when, as far as events show.

        Returns
        -------
        Table
            One row for each tenure, a maximal run of events of one thread: ``thread`` int32, row
            of `threads`; ``start`` and ``end`` int64, ns; ``events`` int64. Between two tenures the
            holder is not known. An interpreter without such a lock has no rows.
        """
        from .table import gil_table

        return gil_table(cast("Trace", self))

    @property
    def own(self) -> Table:
        """What each line of own code cost, with all that libraries did for it.

        Returns
        -------
        Table
            One row for each own line, the most time first: ``function`` int32, row of `functions`;
            ``name``, ``file`` text; ``line`` int32, null for the time that a function took outside
            of its calls; ``calls`` int64, made in the line; ``total`` int64, ns, in what the line
            called; ``self`` int64, ns, the time charged to this line, without the time charged to
            other own lines; ``waited`` int64, ns, the part of ``self`` that waited for the
            interpreter's lock; ``allocated``, ``blocks``, ``live`` and ``at_peak`` int64, charged
            to the line.

        Notes
        -----
        The time and memory of the standard library and of installed packages are charged to the
        nearest own line that called them. `set_own` says what own code is; by default it is what
        lies neither in the standard library nor in site-packages.
        """
        from .table import own_table

        return own_table(cast("Trace", self), self._tree, self._own_patterns)

    def set_own(self, *patterns: str) -> None:
        """Say what own code is.

        Parameters
        ----------
        *patterns : str
            Globs of modules, files or qualified names, as ``include=`` takes them. Without any, own
            code is what lies neither in the standard library nor in site-packages.
        """
        for pattern in patterns:
            if not isinstance(pattern, str):
                raise TypeError(f"set_own takes globs as text, not {type(pattern).__name__}")
        self._own_patterns = patterns or None

    def analyze(self) -> list[Finding]:
        """Find what is likely wrong with the program.

        Returns
        -------
        list of Finding
            The largest share of the time or the bytes first: ``rule``, ``claim``, ``advice``,
            ``share`` (0 to 1), ``numbers``, ``evidence`` (lines), ``command``, ``handle``. Empty
            if no rule found anything.
        """
        from .findings import find

        return find(cast("Trace", self))

    def show_tree(
        self,
        *,
        all: bool = False,
        call: int | None = None,
        slowest: str | None = None,
        at: int | str | None = None,
        span: str | None = None,
        node: int | None = None,
        own: Sequence[str] | str = (),
        limit: int = 25,
        width: int | None = None,
        file: IO[str] | None = None,
    ) -> None:
        """Print the tree of calls, or that of one call.

        Parameters
        ----------
        all : bool
            Show calls inside of the standard library and of installed packages, too.
        call : int, optional
            A row of `calls`: print the calls that it made, in order, each beside the median of the
            same function.
        slowest : str, optional
            The same for the slowest call of the function with this name. If own code has one of
            that name, those of libraries do not count.
        at : int or str, optional
            A time in ns, or text such as ``"1.5 ms"``: print the calls that were open then.
        span : str, optional
            The same as `slowest`, for the slowest span of this name.
        node : int, optional
            A row of `tree`: print this branch alone.
        own : str or sequence of str
            Globs that say what own code is, as for `set_own`.
        limit : int
            The most lines.
        width : int, optional
            The width in columns; by default the terminal's, or 100.
        file : text file, optional
            Where to print; by default standard output.

        Raises
        ------
        ValueError
            There is no such call, function, span, time or branch; or two of them were given.
        """
        from .show import show_tree

        wanted: dict[str, Any] = {
            "call": call, "slowest": slowest, "at": at, "span": span, "node": node,
        }  # fmt: skip
        show_tree(
            cast("Trace", self),
            sys.stdout if file is None else file,
            wanted,
            all=all,
            own=(own,) if isinstance(own, str) else tuple(own),
            limit=limit,
            width=width,
        )
