"""A real program to record: Pygments makes HTML of the standard library, by a pool of processes.

``python benchmarks/highlighting.py --processes 2 --tasks 3 --files 10``: three lists of ten files.
A worker ends after one list, so there is a process a list. Each list begins where the one before
it ended; after the last file comes the first one.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import sysconfig
from pathlib import Path


def highlight(paths: list[str]) -> int:
    """Make HTML of files, and give how many characters that is."""
    from pygments import highlight, lexers
    from pygments.formatters import HtmlFormatter

    length = 0
    for path in paths:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
        made = io.StringIO()
        highlight(text, lexers.get_lexer_for_filename(path), HtmlFormatter(linenos=True), made)
        length += len(made.getvalue())
    return length


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2, help="at a time")
    parser.add_argument("--tasks", type=int, default=2, help="how many lists of files")
    parser.add_argument("--files", type=int, default=10, help="how many files a list has")
    given = parser.parse_args()
    library = Path(sysconfig.get_path("stdlib"))
    every = sorted(str(path) for path in library.rglob("*.py")
                   if "site-packages" not in path.parts)  # fmt: skip
    lists = [
        [every[number % len(every)] for number in range(first, first + given.files)]
        for first in range(0, given.tasks * given.files, given.files)
    ]
    fork = multiprocessing.get_context("fork")
    with fork.Pool(given.processes, maxtasksperchild=1) as pool:
        made = sum(pool.imap_unordered(highlight, lists, chunksize=1))
        pool.close()
        pool.join()
    print(f"{given.tasks * given.files:,} files, {made:,} characters")


if __name__ == "__main__":
    main()
