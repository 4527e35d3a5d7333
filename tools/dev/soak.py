"""``./dev soak [SECONDS]``: full rate for that long, and many threads; see doc/robustness.rst."""

from __future__ import annotations

from pathlib import Path

from dev import c_tests, environments, shell
from dev.packages import Packages
from dev.pythons import take_python


def in_turn(folder: Path, *commands: list[str]) -> int:
    """Run programs until one fails; give its exit code."""
    for command in commands:
        if (status := shell.run(command, folder=folder)) != 0:
            return status
    return 0


def main(arguments: list[str]) -> int:
    """Run the verb."""
    chosen, arguments = take_python(arguments)
    seconds = shell.seconds("soak", arguments[0] if arguments else "3600")
    part = seconds // 4
    packages = Packages()
    packages.need_check()
    environments.set_up(chosen, "build run", packages)
    programs = shell.ROOT / "tools" / "long"
    python = str(chosen.venv / "bin" / "python")
    soak = [python, str(programs / "soak.py")]
    folder = shell.anew(shell.BUILD / "soak")
    on_file = ["--file", str(folder)]
    shell.say(f"== {seconds} s in a ring of 64 MiB, in memory and on file")
    statuses = [
        in_turn(
            folder,
            [*soak, "--seconds", str(seconds - 2 * part), "--plain"],
            [*soak, "--seconds", str(part)],
            [*soak, "--seconds", str(part), *on_file],
        )
    ]
    shell.say("== 30,000 short threads, in memory and on file")
    threads = [*soak, "--threads", "30000"]
    statuses.append(in_turn(folder, threads, [*threads, *on_file]))
    shell.say("== 110 M events by eight threads, for each policy and size: through the hooks")
    statuses.append(in_turn(folder, [python, str(programs / "sums.py"), "--folder", str(folder)]))
    shell.remove(folder)
    shell.say("== 110 M events by eight threads, for each policy and size: the core alone")
    shell.put_first(chosen.venv / "bin")
    core = shell.BUILD / "core"
    status, text = c_tests.compile_in(core, chosen, ("-Dwerror=true", *c_tests.CORE))
    if status != 0:
        shell.say(text.rstrip("\n"))
        return 1
    statuses.append(shell.run([core / "test_sums"], environment={"EP_TEST_EVENTS": "110000000"}))
    return next((status for status in reversed(statuses) if status != 0), 0)
