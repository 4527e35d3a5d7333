"""Install a wheel where there is no compiler, and use it as README says."""

from __future__ import annotations

import re
import struct
import textwrap
import zipfile
from pathlib import Path

from dev import shell
from dev.pythons import Python
from dev.results import Results

MOST_BYTES = 2_000_000
#: Beyond the import of NumPy, in milliseconds of processor time.
MOST_IMPORT_MS = 30
IMPORTS = 15
#: Of headers there is that for marks from C.
UNWANTED = r"(^|/)(tests|__pycache__)/|(?<!/include/eventprof)\.h$|\.(c|o|a)$|README\.md$"

#: Prints how long the import of eventprof takes beyond NumPy's, by the processor's time.
TIME_IMPORT = """
import time
import numpy
began = time.process_time_ns()
import eventprof
print((time.process_time_ns() - began) / 1e6)
"""


def blocks(text: str, language: str) -> list[str]:
    """Return the code blocks of one language in a page."""
    found = re.findall(rf"^\.\. code-block:: {language}\n\n((?:    .*\n|\n)+)", text, re.MULTILINE)
    return [textwrap.dedent(block).strip("\n") for block in found]


def wants_static_tls(data: bytes) -> bool:
    """Whether a shared object of 64-bit ELF may only be loaded when the program starts."""
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
        return False
    (parts,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for number in range(count):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, parts + number * size)
        if kind == 2:  # PT_DYNAMIC
            entries = struct.iter_unpack("<QQ", data[offset : offset + length])
            return any(tag == 30 and value & 16 for tag, value in entries)  # DF_STATIC_TLS
    return False


def faults_of(wheel: Path) -> list[str]:
    """Return what is wrong with a file: its size, its tag, its parts, symbols for a debugger."""
    faults = []
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        faults.append(f"{size:,} bytes, at most {MOST_BYTES:,} are wanted")
    if re.search(r"-(many|musl)linux_[\w.]+\.whl$|-macosx_\w+\.whl$", wheel.name) is None:
        faults.append(
            "the tag is that of one machine, and no index takes it: run auditwheel repair"
        )
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for wanted in (
            r"eventprof/_core\..*\.so",
            r".*dist-info/licenses/LICENSE",
            r"eventprof\.pth",
        ):
            if not any(re.fullmatch(wanted, name) for name in names):
                faults.append(f"no {wanted} inside")
        for name in names:
            if re.search(UNWANTED, name):
                faults.append(f"{name} is not for users")
            elif name.endswith(".so"):
                data = archive.read(name)
                if b"\0.symtab\0" in data:
                    faults.append(f"{name} is not stripped")
                if "musllinux" in wheel.name and wants_static_tls(data):
                    faults.append(f"{name}: musl does not load it, because its TLS is initial-exec")
    return faults


class Empty:
    """An environment with a wheel in it, and no program on PATH but its own."""

    def __init__(self, python: Python) -> None:
        self.runner = python.runner
        self.folder = shell.BUILD / "wheel-check" / python.name
        self.venv = self.folder / "venv"
        self.work = self.folder / "work"
        shell.anew(self.folder)
        shell.anew(self.work)
        shell.must([*python.command, "-m", "venv", self.venv])

    def run(self, *command: str | Path) -> tuple[int, str]:
        """Run a program of the environment; return its exit code and what it printed."""
        name, *rest = command
        # A compiler that is asked for all the same fails.
        alone = ["env", f"PATH={self.venv}/bin", "CC=/no/compiler", "LC_ALL=C.UTF-8"]
        program = self.venv / "bin" / str(name)
        return shell.output([*self.runner, *alone, program, *rest], joined=True, folder=self.work)


def import_ms(empty: Empty) -> float:
    """Return the least time of an import, beyond NumPy's."""
    texts = [empty.run("python", "-c", TIME_IMPORT)[1] for _ in range(IMPORTS)]
    return min(map(float, texts))


def is_quick(empty: Empty) -> tuple[int, str]:
    """Compare the time of an import with the limit."""
    took = import_ms(empty)
    shell.say(f"        import eventprof: {took:.1f} ms beyond NumPy")
    return int(took > MOST_IMPORT_MS), f"{took:.1f} ms, at most {MOST_IMPORT_MS} are wanted"


def example(empty: Empty) -> tuple[int, str]:
    """Do what README shows: record a program, and print its report."""
    readme = (shell.ROOT / "README.rst").read_text(encoding="utf-8")
    (program,) = blocks(readme, "python")
    (session,) = blocks(readme, "console")
    (empty.work / "orders.py").write_text(program + "\n", encoding="utf-8")
    for line in re.findall(r"^\$ eventprof (.*)", session, re.MULTILINE):
        status, text = empty.run("eventprof", *line.split())
        if status != 0:
            return status, text
    # The last command is the report. On 3.11 a comprehension is a function of its own.
    costly = re.search(r" price\S* itself, without its calls$", text, re.MULTILINE)
    return int(costly is None or "nothing lost" not in text), text


def page(empty: Empty) -> tuple[int, str]:
    """Write the page, and look for the program's function in it."""
    status, text = empty.run("eventprof", "view", "orders.epr", "-f", "-o", "orders.html")
    made = empty.work / "orders.html"
    if status == 0 and (not made.exists() or made.stat().st_size < 100_000):
        return 1, f"{text}\norders.html is missing or too small"
    return status, text


def archives(empty: Empty) -> tuple[int, str]:
    """Write an archive: it must be compressed by zstd, which is inside of the wheel."""
    status, text = empty.run("eventprof", "save", "orders.epr", "-o", "packed.epr")
    if status != 0:
        return status, text
    data = (empty.work / "packed.epr").read_bytes()
    # The first bytes of each frame of zstd.
    return int(b"\x28\xb5\x2f\xfd" not in data), "the archive has no part that zstd compressed"


def check_parts(found: Results, wheel: Path) -> None:
    """Look through one wheel."""
    faults = faults_of(wheel)
    found.check(f"{wheel.name}: its parts", lambda: (int(bool(faults)), "\n".join(faults)))


def check(found: Results, python: Python, wheel: Path) -> None:
    """Install one wheel and use it; each finding is counted."""
    empty = Empty(python)
    pip = ("python", "-m", "pip", "install", "-q", "--only-binary", ":all:", wheel)
    installed = empty.run(*pip)
    found.check("installs without a compiler", lambda: installed)
    if installed[0] != 0:
        return
    found.check("pip check", lambda: empty.run("python", "-m", "pip", "check"))
    found.check("README's example", lambda: example(empty))
    found.check("eventprof view", lambda: page(empty))
    found.check("eventprof save, with zstd", lambda: archives(empty))
    found.check("time of an import", lambda: is_quick(empty))
