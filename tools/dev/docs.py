"""``./dev docs``: the pages of doc/ and the reference, as HTML in build/doc."""

from __future__ import annotations

from dev import environments, shell
from dev.pythons import Python, take_python
from dev.results import Results


def sphinx(python: Python) -> list[str]:
    """Return the command that makes the pages anew; a warning is a failure."""
    # Files of an earlier build would hide warnings.
    shell.remove(shell.BUILD / "doc")
    options = [
        "-b",
        "html",
        "-n",
        "-W",
        "--keep-going",
        "-q",
        "-E",
        "-d",
        str(shell.BUILD / "doc-work"),
    ]
    folders = [str(shell.ROOT / "doc"), str(shell.BUILD / "doc")]
    return [str(python.venv / "bin" / "python"), "-P", "-m", "sphinx", *options, *folders]


def check_pages(found: Results, python: Python, *, werror: bool) -> None:
    """Make the pages as a test."""
    shell.say("== pages")
    environments.ensure(python, "build run docs", f"-Dwerror={str(werror).lower()}")
    found.check("sphinx, without a warning", sphinx(python))


def main(arguments: list[str]) -> int:
    """Run the verb."""
    python, arguments = take_python(arguments)
    shell.no_arguments("docs", arguments)
    environments.set_up(python, "build run docs")
    shell.must(sphinx(python))
    shell.say(f"{shell.BUILD}/doc/index.html")
    return 0
