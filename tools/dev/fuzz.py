"""``./dev fuzz [SECONDS]``: each fuzzer for that long; what it finds is in build/fuzz-NAME."""

from __future__ import annotations

from dev import c_tests, environments, packages, shell
from dev.packages import Packages
from dev.pythons import Python, take_python
from dev.results import Results

FUZZERS = ("archive", "decode", "file", "filter")
BUILT = (
    "-Dpython=false",
    "-Dtests=disabled",
    "-Dfuzzing=true",
    "-Dchecks=true",
    "-Db_sanitize=address,undefined",
    "-Db_lundef=false",
    "-Ddebug=true",
)
#: To compile with optimization takes a minute more.
WORTH_SECONDS = 30
LIMITS = ("-max_len=16384", "-timeout=120", "-rss_limit_mb=4000")


def fuzz(found: Results, python: Python, seconds: int, *, werror: bool = True) -> None:
    """Run each fuzzer over its corpus, and for so long further.

    For a few seconds, optimizing the sanitizers' code would cost more than it gains.
    """
    shell.say("== fuzzers")
    if not packages.has_fuzzer():
        shell.say("  --    not run: no clang with libFuzzer here")
        return
    kind, level = ("fuzz", 2) if seconds > WORTH_SECONDS else ("fuzz-short", 0)
    options = (*BUILT, f"-Dwerror={str(werror).lower()}", f"-Doptimization={level}")
    status, text = c_tests.compile_in(shell.BUILD / kind, python, options, "clang")
    if status != 0:
        found.cannot(text)
        return
    for name in FUZZERS:
        new = shell.anew(shell.BUILD / f"fuzz-{name}")
        fuzzer = shell.BUILD / kind / "tests" / "fuzz" / f"fuzz_{name}"
        limits = (f"-max_total_time={seconds}", *LIMITS, f"-artifact_prefix={new}/")
        found.check(name, [fuzzer, *limits, new, f"tests/fuzz/corpus/{name}"])


def main(arguments: list[str]) -> int:
    """Run the verb."""
    seconds = shell.seconds("fuzz", arguments[0]) if arguments else 60
    python, _ = take_python([])
    wanted = Packages()
    wanted.wish_for("clang", "clang")
    wanted.wish_fuzzer()
    environments.set_up(python, "build run", wanted)
    shell.put_first(python.venv / "bin")
    found = Results()
    fuzz(found, python, seconds)
    return int(found.failed > 0 or found.passed == 0)
