"""Platforms that this project is compiled for on another one, and a C compiler for each.

The package ziglang has a compiler with the headers and the C library of each platform. What is
made with it for a platform is in build/targets/NAME: the compiler as one program, zstd, zlib, and
Check for the tests in C.
"""

from __future__ import annotations

import ast
import os
import platform
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

from dev import debian, packages, shell
from dev.pythons import Python, minor

#: NumPy's wheels need no older one, and eventprof needs NumPy.
GLIBC = "2.28"
#: The oldest macOS with processors of both kinds.
MACOS = "11.0"
#: The package whose sdist has zstd's source as one file, and zstd's version in it.
#: licenses/zstd.txt is from there.
ZSTD_FROM = "zstandard==0.25.0"
ZSTD = "1.5.7"
#: Check's source, in each mirror of Debian, and its SHA-256.
CHECK = "0.15.2"
CHECK_FROM = f"pool/main/c/check/check_{CHECK}.orig.tar.gz"
CHECK_SHA256 = "8451b68ac5d6f3157b24f22eceff575bcf566264f6d78f3852f89d4e08cf42e1"
#: What Check's configure finds on each of these platforms.
CHECK_HAS = (
    "DECL_ALARM", "DECL_LOCALTIME_R", "DECL_SETENV", "DECL_STRDUP", "DECL_STRSIGNAL", "FORK",
    "GETPID", "GETTIMEOFDAY", "MALLOC", "MKSTEMP", "PTHREAD", "REALLOC", "SIGACTION", "SNPRINTF",
    "STDARG_H", "STDINT_H", "SYS_TIME_H", "SYS_WAIT_H", "UNISTD_H", "VSNPRINTF",
)  # fmt: skip
#: The functions of zlib that eventprof calls. Each platform has zlib; the linker needs the names.
ZLIB_CALLS = (
    "compressBound", "deflate", "deflateEnd", "deflateInit_", "inflate", "inflateEnd",
    "inflateInit_",
)  # fmt: skip
#: A library as pkg-config describes it. meson finds only this one, not that of the system.
PKG_CONFIG = """Name: {name}
Description: {name}, for another platform
Version: {version}
Libs: -L{prefix}/lib -l{library}
Cflags: -isystem {prefix}/include
"""
#: How meson is told about a platform.
CROSS_FILE = """[binaries]
c = '{compiler}'
ar = '{archiver}'
pkg-config = 'pkg-config'
{wrapper}
[host_machine]
system = '{system}'
cpu_family = '{cpu}'
cpu = '{cpu}'
endian = 'little'
[properties]
needs_exe_wrapper = {wrapped}
pkg_config_libdir = '{prefix}/lib/pkgconfig'
"""
#: Prints what Python was built with, of which the target's sysconfig is made.
BUILD_VARIABLES = "import sysconfig; print(repr(sysconfig.get_config_vars()))"


@dataclass(frozen=True)
class Target:
    """A platform, by the name that the command line gives it."""

    name: str
    #: As the compiler names it.
    triple: str
    system: str
    cpu: str
    #: As Python's sysconfig names it, and the end of an extension's name.
    platform: str
    suffix: str
    #: As Debian names it, if it has the platform.
    debian: str = ""

    @property
    def prefix(self) -> Path:
        """The folder of what is made for it."""
        return shell.BUILD / "targets" / self.name

    @property
    def is_here(self) -> bool:
        """Whether this machine runs its programs without an emulator."""
        return self.system == "linux" and self.cpu == platform.machine()

    @property
    def is_native(self) -> bool:
        """Whether the interpreters of this machine are of this platform."""
        return self.is_here and not self.is_static

    @property
    def is_static(self) -> bool:
        """Whether its programs are linked without shared libraries, so that they run anywhere."""
        return self.triple.endswith("musl")


def linux(cpu: str, debian_name: str) -> list[Target]:
    """Return Linux on a processor, with glibc and with musl."""
    glibc, musl = f"{cpu}-linux-gnu", f"{cpu}-linux-musl"
    return [
        Target(cpu, f"{glibc}.{GLIBC}", "linux", cpu, f"linux-{cpu}", glibc, debian_name),
        Target(f"{cpu}-musl", musl, "linux", cpu, f"linux-{cpu}", musl),
    ]


def macos(cpu: str, name: str) -> Target:
    """Return macOS on a processor, which Apple names otherwise."""
    triple, tag = f"{cpu}-macos.{MACOS}", f"macosx-{MACOS}-{name}"
    return Target(f"{name}-macos", triple, "darwin", cpu, tag, "darwin")


TARGETS = {
    target.name: target
    for target in (
        *linux("x86_64", "amd64"),
        *linux("aarch64", "arm64"),
        macos("aarch64", "arm64"),
        macos("x86_64", "x86_64"),
    )
}


def choose(name: str) -> Target:
    """Return a platform by its name."""
    if name not in TARGETS:
        shell.misuse(f"no platform {name}: {', '.join(TARGETS)}")
    return TARGETS[name]


# ---- Libraries ---------------------------------------------------------------------------------


def write_library(prefix: Path, name: str, library: str, version: str) -> None:
    """Write the file from which pkg-config knows a library."""
    folder = prefix / "lib" / "pkgconfig"
    folder.mkdir(parents=True, exist_ok=True)
    text = PKG_CONFIG.format(name=name, version=version, prefix=prefix, library=library)
    (folder / f"{name}.pc").write_text(text, encoding="utf-8")


def archive(prefix: Path, library: str, sources: list[Path], *flags: str) -> None:
    """Compile sources into a static library."""
    objects = []
    for source in sources:
        made = source.with_suffix(".o")
        shell.must([prefix / "cc", "-O2", "-fPIC", *flags, "-c", source, "-o", made])
        objects.append(made)
    shell.must([prefix / "ar", "rcs", prefix / "lib" / f"lib{library}.a", *objects])


def add_zlib(target: Target) -> None:
    """Write zlib as the linker sees it, which each platform has, with this machine's headers.

    The folders of the system would bring its libc's headers, too, which the target does not have.
    """
    prefix = target.prefix
    multiarch = shell.output([*packages.compiler(), "-print-multiarch"])[1].strip()
    for header in ("zlib.h", "zconf.h"):
        places = (Path("/usr/include") / header, Path("/usr/include") / multiarch / header)
        path = next((place for place in places if place.exists()), None)
        if path is None:
            shell.die(f"no {header} here (Debian's zlib1g-dev)")
        shutil.copy(path, prefix / "include")
    source = prefix / "source" / "zlib_names.c"
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in ZLIB_CALLS), encoding="utf-8")
    if target.system == "darwin":
        library, name = "libz.dylib", "-Wl,-install_name,/usr/lib/libz.1.dylib"
    else:
        library, name = "libz.so", "-Wl,-soname,libz.so.1"
    shell.must([prefix / "cc", "-shared", name, source, "-o", prefix / "lib" / library])
    text = (prefix / "include" / "zlib.h").read_text(encoding="utf-8", errors="replace")
    write_library(prefix, "zlib", "z", text.partition('#define ZLIB_VERSION "')[2].split('"')[0])


def add_zstd(target: Target, tools: Path) -> None:
    """Compile zstd: Debian's static library cannot be linked into an extension."""
    prefix = target.prefix
    into = prefix / "source"
    pip: list[str | Path] = [tools / "bin" / "python", "-m", "pip", "download", "-q"]
    shell.must([*pip, "--no-deps", "--no-binary", ":all:", "-d", into, ZSTD_FROM])
    (packed,) = into.glob("*.tar.gz")
    with tarfile.open(packed) as files:
        for member in files.getmembers():
            name = Path(member.name)
            if (
                member.isfile()
                and name.parent.name == "zstd"
                and (data := files.extractfile(member))
            ):
                to = prefix / "include" if name.suffix == ".h" else into
                (to / name.name).write_bytes(data.read())
    flags = ("-O3", "-fvisibility=hidden", "-DZSTDLIB_VISIBLE=", "-DZSTDERRORLIB_VISIBLE=")
    archive(prefix, "zstd", [into / "zstd.c"], *flags, f"-I{prefix}/include")
    write_library(prefix, "libzstd", "zstd", ZSTD)


def add_check(target: Target) -> None:
    """Compile Check, without what its tests alone need."""
    prefix = target.prefix
    if (prefix / "lib" / "libcheck.a").exists():
        return
    packed = debian.fetch(CHECK_FROM, CHECK_SHA256, shell.BUILD / "targets")
    root = shell.extract(packed, shell.anew(prefix / "check"))
    lines = [f"#define HAVE_{name} 1" for name in CHECK_HAS]
    lines += [f'#define PACKAGE_VERSION "{CHECK}"', "#define VERSION PACKAGE_VERSION"]
    lines += ["#define ENABLE_SUBUNIT 0", "#define _GNU_SOURCE 1"]
    parts = ["libcompat.c"]
    if target.system == "darwin":
        # It has no timers of POSIX: Check has its own, with these types.
        lines += ["#define timer_t int", "#define STRUCT_ITIMERSPEC_DEFINITION_MISSING 1"]
        parts += ["timer_create.c", "timer_delete.c", "timer_settime.c"]
    else:
        lines.append("#define HAVE_LIBRT 1")
    (root / "config.h").write_text("\n".join(lines) + "\n", encoding="utf-8")
    includes = [f"-I{folder}" for folder in (root, root / "src", root / "lib")]
    sources = [*sorted((root / "src").glob("*.c")), *(root / "lib" / name for name in parts)]
    archive(prefix, "check", sources, "-w", "-DHAVE_CONFIG_H=1", *includes)
    for header in (root / "src" / "check.h", root / "check_stdint.h"):
        shutil.copy(header, prefix / "include")
    write_library(prefix, "check", "check", CHECK)


# ---- The compiler ------------------------------------------------------------------------------


def prepare(target: Target, tools: Path) -> dict[str, str]:
    """Return the variables for a build for a platform, and make what it needs.

    Parameters
    ----------
    target : Target
        The platform.
    tools : Path
        An environment with the package ziglang.
    """
    (zig,) = tools.glob("lib/python*/site-packages/ziglang/zig")
    prefix = target.prefix
    cache = str(shell.BUILD / "targets" / "cache")
    os.environ["ZIG_GLOBAL_CACHE_DIR"] = cache
    variables = {
        "CC": str(prefix / "cc"),
        "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig"),
        "ZIG_GLOBAL_CACHE_DIR": cache,
    }
    made = f"{zig} {target} {ZSTD_FROM}\n"
    if shell.read(prefix / "made") == made:
        return variables
    shell.note(f"preparing the compiler and libraries for {target.triple}")
    shell.anew(prefix)
    for folder in ("include", "lib", "source"):
        (prefix / folder).mkdir()
    for name, command in (("cc", f"cc -target {target.triple}"), ("ar", "ar")):
        (prefix / name).write_text(f'#!/bin/sh\nexec "{zig}" {command} "$@"\n', encoding="utf-8")
        (prefix / name).chmod(0o755)
    add_zstd(target, tools)
    add_zlib(target)
    (prefix / "made").write_text(made, encoding="utf-8")
    return variables


def cross_file(target: Target, wrapper: list[str] | None = None) -> Path:
    """Write the file by which meson knows a platform.

    Parameters
    ----------
    target : Target
        The platform, prepared.
    wrapper : list of str, optional
        What runs a program of it on this machine; None: nothing does. Empty: it runs as it is.
    """
    path = target.prefix / ("compile.ini" if wrapper is None else "run.ini")
    text = CROSS_FILE.format(
        compiler=target.prefix / "cc",
        archiver=target.prefix / "ar",
        wrapper=f"exe_wrapper = {wrapper!r}" if wrapper else "",
        wrapped=str(wrapper != []).lower(),
        system=target.system,
        cpu=target.cpu,
        prefix=target.prefix,
    )
    path.write_text(text, encoding="utf-8")
    return path


def headers_of(python: Python, target: Target) -> None:
    """Let the compiler find the second half of pyconfig.h.

    Debian's includes it as <x86_64-linux-gnu/python3.14/pyconfig.h>, from /usr/include, which a
    compiler for another libc does not look into. That of another processor differs in nothing that
    the headers of Python use (Debian's of 3.13: in four names of the interpreter's own sources).
    """
    folder = f"{platform.machine()}-linux-gnu/python{minor(python.name)}"
    folder_of_headers = target.prefix / "include" / folder
    folder_of_headers.mkdir(parents=True, exist_ok=True)
    line = f'#include "/usr/include/{folder}/pyconfig.h"\n'
    (folder_of_headers / "pyconfig.h").write_text(line, encoding="utf-8")


def python_variables(python: Python, target: Target) -> dict[str, str]:
    """Return the variables by which an interpreter of this machine describes one of a platform.

    They are CPython's own for this: a build of the interpreter for another platform sets them.
    """
    status, text = shell.output([*python.command, "-c", BUILD_VARIABLES])
    if status != 0:
        shell.die(f"{python.full}: it does not say what it was built with")
    soabi = f"cpython-{minor(python.name).replace('.', '')}-{target.suffix}"
    known = ast.literal_eval(text)
    known |= {"EXT_SUFFIX": f".{soabi}.so", "SOABI": soabi, "MULTIARCH": target.suffix}
    folder = target.prefix / f"python-{python.name}"
    folder.mkdir(exist_ok=True)
    name = "_sysconfigdata_of_target"
    (folder / f"{name}.py").write_text(f"build_time_vars = {known!r}\n", encoding="utf-8")
    return {
        "PYTHONPATH": str(folder),
        "_PYTHON_SYSCONFIGDATA_NAME": name,
        "_PYTHON_HOST_PLATFORM": target.platform,
    }
