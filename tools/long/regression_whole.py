"""CPython's whole test suite under eventprof: each of its files is to end as it does without.

    python tools/long/regression_whole.py              all files that `python -m test` runs without -u
    python tools/long/regression_whole.py test_gc ...  these files
    python tools/long/regression_whole.py --page       writes doc/regression_whole.inc of the results kept so far

Run by the Python that has eventprof. Each file runs as a process of its own with a limit on its time, recorded
first. Where each case passed, that is all. Where a case failed, was skipped (in a file of a few seconds) or is
missing because the process ended early, the file runs without eventprof, too, and what differs is run again on
both sides, as in regression.py, whose page includes that of this script. A file whose result is kept in --results is not run
again, so that a run can be continued; --differing runs those again that differ.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fnmatch
import json
import platform
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import regression

#: A file with skipped cases runs without eventprof, too, if it took at most so many seconds.
SHORT_S = 30.0


def suite_of(name: str) -> regression.Suite:
    """Return the command for a file; cases that are left out elsewhere are left out here, too."""
    command = ["-m", "test", "--fail-env-changed", "--junit-xml={xml}", name]
    left_out = regression.LEFT_OUT.get((name, regression.VERSION))
    return regression.Suite(name, [*command, "-i", left_out[0]] if left_out else command)


def differs(kept: dict[str, Any]) -> bool:
    """Return whether a file ended under eventprof in a way in which it never ended without."""
    bare, ours = kept["status"]
    return bool(kept["differences"]) or (bare != ours and not kept["unsteady"])


def result_of(name: str, limit_s: float, again: int) -> dict[str, Any]:
    """Run a file. Returns: what is kept of it."""
    suite = suite_of(name)
    ours = regression.run(suite, regression.OURS, limit_s)
    outcomes = set(ours.cases.values())
    passed = ours.status == "exit 0" and outcomes == {"passed"}
    skipped = ours.status == "exit 0" and outcomes == {"passed", "skipped"}
    if passed or (skipped and ours.seconds > SHORT_S):
        return {
            "status": [ours.status, ours.status],
            "seconds": [None, round(ours.seconds, 1)],
            "cases": len(ours.cases),
            "fails_bare": [],
            "recorded": ours.last_line,
            "differences": {},
            "unsteady": {},
        }
    return regression.compare(suite, limit_s, again, ours)


# ---- The page ------------------------------------------------------------------------------------------------


def fails_bare(kept: dict[str, Any]) -> bool:
    """Return whether a file fails without eventprof."""
    return bool(kept["fails_bare"]) or kept["status"][0] not in ("exit 0", "exit 4")


def page(results: Path) -> None:
    """Write doc/regression_whole.inc."""
    found = []
    for about in results.glob("*/about.json"):
        kept = [json.loads(p.read_text()) for p in about.parent.glob("*.json") if p != about]
        found.append((json.loads(about.read_text()), sorted(kept, key=lambda each: each["suite"])))
    found.sort(key=lambda each: [int(n) for n in each[0]["python"].rstrip("t").split(".")])

    def wrap(text: str, indent: str = "") -> list[str]:
        return textwrap.wrap(
            text, 118, initial_indent=indent, subsequent_indent=indent,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip

    out = [
        ".. Written by tools/long/regression_whole.py --page; change that.",
        "",
        *wrap(
            "All files of the suite that ``python -m test`` runs without ``-u``, each as a process of its own. A file is "
            "recorded first. If a case of it does not pass, or the process does not end well, the file runs without "
            "eventprof, too, and what differs is run again on both sides."
        ),
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "",
        "   * - Python",
        *(
            f"     - {head}"
            for head in (
                "files",
                "run",
                "cases",
                "files that differ",
                "files that fail without, too",
            )
        ),
    ]
    differing: dict[str, list[str]] = {}
    failing = []
    for about, kept in found:
        python, differ = about["python"], [each for each in kept if differs(each)]
        bare = [each["suite"] for each in kept if fails_bare(each)]
        cases = sum(each["cases"] for each in kept)
        numbers = (about["files"], len(kept), cases, len(differ), len(bare))
        out += [f"   * - {python}", *(f"     - {number:,}" for number in numbers)]
        for each in differ:
            bare_status, status = each["status"]
            # A module's set-up that fails is a case without a name.
            ends = {case: " -> ".join(e[:2]) for case, e in each["differences"].items() if case}
            for case, end in (ends or {each["suite"]: f"{bare_status} -> {status}"}).items():
                pattern = next(
                    (p for p, _ in regression.EXPLAINED if fnmatch.fnmatchcase(case, p)), ""
                )
                text = python if pattern else f"{python}: {end}"
                differing.setdefault(pattern or case, []).append(text)
        if bare:
            failing.append(f"{python}: {', '.join(bare)}")
    out += [""]
    for pattern, why in regression.EXPLAINED:
        if pattern in differing:
            texts = differing.pop(pattern)
            counts = [f"{texts.count(python)} on {python}" for python in dict.fromkeys(texts)]
            out += [f"``{pattern}``", *wrap(f"{', '.join(counts)}. {why}", "    "), ""]
    for case, texts in differing.items():
        out += [f"``{case}``", *wrap(f"{'; '.join(texts)}. Not explained.", "    "), ""]
    if failing:
        out += [*wrap(f"Files that fail without eventprof, too: {'; '.join(failing)}."), ""]
    (regression.ROOT / "doc/regression_whole.inc").write_text("\n".join(out))


# ---- Running -------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="*", help="names, as `python -m test --list-tests` has them")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=1200, metavar="SECONDS", help="of one run")
    parser.add_argument("--again", type=int, default=2, help="how often what differs is run again")
    parser.add_argument("--differing", action="store_true", help="run those again that differ")
    parser.add_argument(
        "--results", type=Path, default=regression.ROOT / "build/regression/whole", metavar="DIR"
    )
    parser.add_argument("--page", action="store_true", help="write doc/regression_whole.inc")
    given = parser.parse_args()
    if given.page:
        page(given.results)
        return 0
    # A shell starts what runs in the background with SIGINT ignored: test_runners waits for it for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    listed = subprocess.run(
        [sys.executable, "-m", "test", "--list-tests"], capture_output=True, text=True, check=True
    ).stdout.split()
    directory = given.results / regression.VERSION
    directory.mkdir(parents=True, exist_ok=True)
    python = platform.python_version() + regression.FREE
    about = {"python": python, "files": len(listed)}
    (directory / "about.json").write_text(json.dumps(about, indent=1) + "\n")

    def is_left(name: str) -> bool:
        path = directory / f"{name}.json"
        if not path.exists():
            return True
        return given.differing and differs(json.loads(path.read_text()))

    left = [name for name in given.files or listed if given.files or is_left(name)]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        running = {pool.submit(result_of, name, given.limit, given.again): name for name in left}
        for number, done in enumerate(concurrent.futures.as_completed(running), 1):
            name, kept = running[done], done.result()
            whole = {"suite": name, "python": python, **kept}
            (directory / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n")
            unknown = [case for case in kept["differences"] if not regression.explained(case)]
            failed += differs(kept)
            print(
                f"{number}/{len(left)} {name:40} {kept['cases']:5} cases, "
                f"{' / '.join(kept['status'])}, {' / '.join(map(str, kept['seconds']))} s; "
                f"{len(kept['differences'])} differ, {len(kept['unsteady'])} unsteady, "
                f"{len(kept['fails_bare'])} fail without",
                flush=True,
            )
            for case in unknown[:20]:
                print(f"    {case}: {' -> '.join(kept['differences'][case])}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
