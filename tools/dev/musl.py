"""A CPython of musl, compiled here from Debian's sources, and musl itself.

No package index has one, and the musl of Debian 12 does not load NumPy (it is older than 1.2.4).
All is found by its own folder, and nothing of the system is changed. Without OpenSSL: what is
installed into it is fetched by another interpreter.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from dev import debian, pythons, shell
from dev.packages import Packages
from dev.pythons import Python
from dev.targets import Target

#: In the pool of each mirror of Debian, with its SHA-256.
MUSL = (
    "pool/main/m/musl/musl_1.2.5.orig.tar.gz",
    "a9a118bbe84d8764da0ea0d28b3ab3fae8477fc7e4085d90102b8596fc7c75e4",
)
ZLIB = (
    "pool/main/z/zlib/zlib_1.3.dfsg+really1.3.1.orig.tar.gz",
    "60dd315c07f616887caa029408308a018ace66e3d142726a97db164b3b8f69fb",
)
FFI = (
    "pool/main/libf/libffi/libffi_3.4.4.orig.tar.gz",
    "d66c56ad259a82cf2a9dfc408b32bf5da52371500b84745f7fb8b645712df676",
)
CPYTHON = (
    "pool/main/p/python3.13/python3.13_3.13.5.orig.tar.xz",
    "93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640",
)
#: A thread of musl has 128 KiB of stack, and Python's limit of recursion needs more. The images of
#: musl that people use are compiled with this, too.
STACK = "-DTHREAD_STACK_SIZE=0x100000"
#: The kernel's headers, which the compiler of musl does not find: in /usr/include, or in its folder
#: of the processor.
KERNEL = ("linux", "asm-generic", "asm")
#: musl-gcc says that it compiles for glibc, as gcc does; CPython's configure refuses that.
COMPILER = """#!/bin/sh
[ "$1" != --print-multiarch ] || {{ echo {triple}; exit 0; }}
exec {prefix}/bin/musl-gcc "$@"
"""
#: $1: the folder that all is installed into. $2: the sources. Then: what configure is told.
BUILD = """
set -e
export CC=$1/bin/cc OPT="-O1 -DNDEBUG" CFLAGS="-O1 -I$1/include"
export LDFLAGS="-L$1/lib -Wl,-rpath,$1/lib"
export PKG_CONFIG_LIBDIR=$1/lib/pkgconfig
cd "$2"
shift 2
./configure "$@"
make -s -j"$(nproc)"
make -s install
"""


def compile_source(source: tuple[str, str], prefix: Path, *options: str) -> None:
    """Compile and install one source; what was printed is shown if that fails."""
    work = shell.anew(prefix / "source")
    packed = debian.fetch(*source, shell.BUILD / "targets")
    folder = shell.extract(packed, work)
    shell.note(f"compiling {folder.name} for musl")
    words: list[str | Path] = ["sh", "-c", BUILD, "sh", prefix, folder, f"--prefix={prefix}"]
    status, text = shell.output([*words, *options], joined=True)
    if status != 0:
        shell.complain("\n".join(text.splitlines()[-40:]))
        shell.die(f"{folder.name}: it cannot be compiled for musl")
    shell.remove(work)


def ensure(target: Target) -> Python:
    """Return a CPython of musl, which is compiled if it is not there: some minutes."""
    wanted = Packages()
    if not shell.has("make"):
        wanted.need.append("make")
    wanted.install()
    prefix = shell.BUILD / "targets" / f"{target.name}-python"
    sources = f"{MUSL} {ZLIB} {FFI} {CPYTHON} {STACK}\n"
    with shell.locked(f"{target.name}-python"):
        if shell.read(prefix / "made") != sources:
            shell.anew(prefix)
            for folder in ("bin", "etc", "include"):
                (prefix / folder).mkdir()
            # Where its loader looks, which is in lib beside this folder.
            (prefix / "etc" / f"ld-musl-{target.cpu}.path").write_text(f"{prefix}/lib\n")
            # What tests compile, this interpreter loads. Not as gcc, which musl-gcc starts.
            text = COMPILER.format(triple=target.triple, prefix=prefix)
            (prefix / "bin" / "cc").write_text(text)
            (prefix / "bin" / "cc").chmod(0o755)
            for name in KERNEL:
                places = (
                    Path("/usr/include"),
                    Path(f"/usr/include/{platform.machine()}-linux-gnu"),
                )
                found = next((folder / name for folder in places if (folder / name).exists()), None)
                if found is None:
                    shell.die(f"no headers of the kernel here: {name} (Debian's linux-libc-dev)")
                (prefix / "include" / name).symlink_to(found)
            own = (f"--syslibdir={prefix}/lib", "CC=gcc", "CFLAGS=-O2", "LDFLAGS=")
            compile_source(MUSL, prefix, *own)
            compile_source(ZLIB, prefix)
            ffi = ("--disable-docs", "--disable-multi-os-directory", "--disable-exec-static-tramp")
            compile_source(FFI, prefix, *ffi, "--without-gcc-arch")
            python = ("-q", "--disable-test-modules", "--without-ensurepip", f"CPPFLAGS={STACK}")
            compile_source(CPYTHON, prefix, *python)
            (prefix / "bin" / "python").symlink_to("python3")
            (prefix / "made").write_text(sources, encoding="utf-8")
    runner = ("env", f"PATH={prefix}/bin:{os.environ['PATH']}")
    full = shell.output([prefix / "bin" / "python", "-c", pythons.SHOW])[1].strip()
    return Python(target.name, 0, full, True, True, str(prefix / "bin" / "python"), runner)
