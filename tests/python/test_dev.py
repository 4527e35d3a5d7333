"""Parts of ./dev: which CPythons it finds, and what counts of tests that failed first and passed alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DEV = Path(__file__).parents[2] / "dev"


def dev(script, folder, **environment):
    """What a script prints that has the functions of ./dev."""
    done = subprocess.run(
        ["bash", "-c", f'set -- help; source "{DEV}" >"{folder}/usage"; {script}'],
        capture_output=True,
        text=True,
        env={"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(folder), **environment},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def put_python(path, release, *, headers=1):
    """A program that answers ./dev as such an interpreter would."""
    major, minor, micro = release.rstrip("t").split(".")
    free = "t" if release.endswith("t") else ""
    number = int(major) << 24 | int(minor) << 16 | int(micro) << 8 | 0xF0
    answer = "\\t".join(map(str, (f"{major}.{minor}{free}", number, release, headers, 1, path)))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nprintf '{answer}\\n'\n")
    path.chmod(0o755)


FOUND = """
    candidates() { ls -d "$HOME"/.pyenv/versions/*/bin/python3 "$HOME"/bin/*; }    # none of this machine
    find_pythons
    for name in "${!python_path[@]}"; do echo "$name ${python_full[$name]} ${python_path[$name]}"; done | sort
"""


@pytest.fixture
def pythons(tmp_path):
    """Three releases of 3.11, one of them twice, and others of 3.13."""
    versions = tmp_path / ".pyenv" / "versions"
    put_python(versions / "3.11.2" / "bin" / "python3", "3.11.2")
    put_python(versions / "3.11.7" / "bin" / "python3", "3.11.7")
    put_python(versions / "3.13.0" / "bin" / "python3", "3.13.0")
    put_python(versions / "3.13.0t" / "bin" / "python3", "3.13.0t")
    put_python(tmp_path / "bin" / "python3", "3.11.10", headers=0)
    put_python(tmp_path / "bin" / "python3.11", "3.11.2")
    return tmp_path


def test_each_release_is_found_and_the_newest_has_the_short_name(pythons):
    lines = dev(FOUND, pythons).splitlines()

    assert [tuple(line.split()[:2]) for line in lines] == [
        ("3.11", "3.11.10"),
        ("3.11.2", "3.11.2"),
        ("3.11.7", "3.11.7"),
        ("3.13", "3.13.0"),
        ("3.13t", "3.13.0t"),
    ]


def test_names_of_releases(pythons):
    script = (
        FOUND
        + """
        for name in 3.11 3.11.2 3.13.5t 3.13t 3.15.0rc1 3.14-chroot; do echo "of $(minor $name)"; done
        echo "named $(named 3.11.10) $(named 3.11.7) $(named 3.11.99)"
        echo "beside $(releases_beside 3.11 | tr '\\n' ' ')"
        python_headers[3.11.2]=0
        need_python 3.11.2
        echo "need ${need[*]}"
        is_tested 3.11.2 && ! is_tested 3.15.0 && echo tested
    """
    )

    lines = dev(script, pythons).splitlines()

    assert [line for line in lines if line.startswith("of ")] == [
        "of 3.11", "of 3.11", "of 3.13t", "of 3.13t", "of 3.15", "of 3.14-chroot",
    ]  # fmt: skip
    assert "named 3.11 3.11.7 3.11.99" in lines
    assert "beside 3.11.2 3.11.7 " in lines
    assert "need python3.11-dev" in lines
    assert "tested" in lines


def test_a_release_beside_the_newest_that_lacks_packages_is_wished_for_and_left_out(pythons):
    put_python(pythons / ".pyenv" / "versions" / "3.11.2" / "bin" / "python3", "3.11.2", headers=0)
    script = (
        FOUND
        + """
        build=$HOME
        wish_python 3.11.2
        wish_python 3.11.7
        echo "wish ${wish[*]}"
        for name in 3.11.2 3.11.7; do if is_usable $name; then echo "$name usable"; else echo "$name not"; fi; done
    """
    )

    lines = dev(script, pythons).splitlines()[-3:]
    put_python(pythons / ".pyenv" / "versions" / "3.11.2" / "bin" / "python3", "3.11.2")
    installed = "python_headers[3.11.2]=0; is_usable 3.11.2 && echo usable now"
    later = dev(FOUND + installed, pythons).splitlines()[-1]

    assert lines == ["wish python3.11-dev", "3.11.2 not", "3.11.7 usable"]
    assert later == "usable now"


# ---- Tests that failed -----------------------------------------------------------------------------------


def put_outcomes(path, **outcomes):
    """A report of pytest. `teardown`: the test passed, and its tear-down did not."""
    inside = {
        "passed": [""],
        "failed": ["<failure/>"],
        "skipped": ["<skipped/>"],
        "teardown": ["", "<error/>"],
    }
    cases = [
        f'<testcase classname="tests.m" name="{name}">{content}</testcase>'
        for name, outcome in outcomes.items()
        for content in inside[outcome]
    ]
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")


COUNT = """
    build="$FOLDER" host=x
    python_full[3.12]=3.12.1
    declare -A python_passed=() python_failed=() python_skipped=() python_seconds=([3.12]=7)
    versions=(3.12) again=()
    count_python 3.12 STATUS ''
    echo "again: ${again[*]}"
    if [[ ${#again[@]} -gt 0 ]]; then count_python 3.12 1 2; fi
    py_tests=0
    report_python
    echo "$passed passed, $failed failed, $skipped skipped"
"""


def count(folder, status):
    python = folder / "venv-x" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return dev(COUNT.replace("STATUS", str(status)), folder, FOLDER=str(folder)).splitlines()


FIRST = {
    "a": "passed",
    "b": "failed",
    "c": "failed",
    "d": "teardown",
    "e": "skipped",
    "f": "failed",
}


def test_what_passes_alone_is_named_and_counted(tmp_path):
    put_outcomes(tmp_path / "pytest-3.12-1.xml", **FIRST)
    put_outcomes(tmp_path / "pytest-3.12-2.xml", b="passed", c="failed", d="passed", f="skipped")

    lines = count(tmp_path, 1)

    assert lines == [
        "again: 3.12",
        "  failed beside other suites, passed alone: tests.m::b (3.12.1)",
        "  failed beside other suites, passed alone: tests.m::d (3.12.1)",
        "  3.12.1: 3 passed, 2 failed, 1 skipped, 7 s",
        "3 passed, 2 failed, 1 skipped",
    ]


def test_a_crash_in_the_second_round_leaves_the_failures_of_the_first(tmp_path):
    put_outcomes(tmp_path / "pytest-3.12-1.xml", **FIRST)

    lines = count(tmp_path, 1)

    assert lines[0] == "again: 3.12"
    assert lines[-1] == "1 passed, 4 failed, 1 skipped"


@pytest.mark.parametrize("status", [134, 139, 2, 1])
def test_a_crash_is_a_failure_and_not_run_again(tmp_path, status):
    lines = count(tmp_path, status)  # no report was written

    assert lines[0] == "again: "
    assert lines[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_run_without_a_failure_is_not_run_again(tmp_path):
    put_outcomes(tmp_path / "pytest-3.12-1.xml", a="passed", e="skipped")

    lines = count(tmp_path, 0)

    assert lines[0] == "again: "
    assert lines[-1] == "1 passed, 0 failed, 1 skipped"
