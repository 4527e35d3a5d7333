"""A bare Debian in a folder, by debootstrap: what a user has who installed nothing.

One of another processor is unpacked without being set up, and qemu-user runs its programs.

Programs run in it by chroot, with build/ of this checkout, or all of it, under its own path. What
is mounted for that is seen by those programs alone, and is gone when they end.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import urllib.request
from pathlib import Path

from dev import pythons, shell
from dev.packages import Packages
from dev.pythons import Python

#: Programs of a wheel's user: venv needs a package of its own on Debian.
INCLUDED = "python3,python3-venv,ca-certificates"
#: Where the kernel is told what runs programs of other processors.
FORMATS = Path("/proc/sys/fs/binfmt_misc")
#: How this machine reaches the mirror and the package index, if that takes more than DNS.
NETWORK = ("etc/resolv.conf", "etc/hosts", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
#: $1: the root, $2: what is shared. The folder it is started in is the program's, too.
ENTER = """
set -e
root=$1 shared=$2 here=$PWD
shift 2
mkdir -p "$root/$shared"
mount --bind "$shared" "$root/$shared"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
exec chroot "$root" env -C "$here" "$@"
"""
#: Debian has the interpreter as python3 alone.
NAMED = '[ "$1" != python ] || { shift; set -- python3 "$@"; }; exec "$@"'


def mirror() -> str:
    """Return the address that apt-get of this machine has Debian from, or Debian's own."""
    lists = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.sources")]
    for path in lists:
        for line in shell.read(path).splitlines():
            found = re.search(r"https?://\S+/debian/?(?=\s|$)", line)
            if found and not line.lstrip().startswith("#"):
                return found[0]
    return "http://deb.debian.org/debian"


def fetch(path: str, sha256: str, into: Path) -> Path:
    """Return a file of the mirror in a folder, where it is fetched once.

    Raises
    ------
    SystemExit
        If the mirror has another file under this path than the one that is known here, or none.
    """
    packed = into / path.rpartition("/")[2]
    if not packed.exists():
        try:
            with urllib.request.urlopen(f"{mirror().rstrip('/')}/{path}") as answer:
                data = answer.read()
        except OSError as error:
            shell.die(f"{path}: not in the mirror of Debian: {error}")
        if hashlib.sha256(data).hexdigest() != sha256:
            shell.die(f"{path}: the mirror's file is not the one that is known here")
        into.mkdir(parents=True, exist_ok=True)
        packed.write_bytes(data)
    return packed


def need_emulator(suite: str, architecture: str) -> None:
    """Have the kernel run programs of another processor by qemu-user."""
    cpu = {"arm64": "aarch64", "amd64": "x86_64"}[architecture]
    wanted = Packages()
    if not shell.has(f"qemu-{cpu}-static"):
        wanted.need.append("qemu-user-static")
    wanted.install()
    if not (FORMATS / "register").exists():
        shell.run(["mount", "-t", "binfmt_misc", "binfmt_misc", FORMATS])
    if not (FORMATS / f"qemu-{cpu}").exists():
        try:
            rule = Path(f"/usr/lib/binfmt.d/qemu-{cpu}.conf").read_text(encoding="utf-8")
            (FORMATS / "register").write_text(rule, encoding="utf-8")
        except OSError as error:
            shell.die(f"--debian {suite}: the kernel does not run programs of {cpu}: {error}")


def unpack(root: Path) -> None:
    """Unpack what debootstrap has fetched: to set it up by the emulator would take an hour."""
    for package in sorted((root / "var" / "cache" / "apt" / "archives").glob("*.deb")):
        shell.must(["dpkg-deb", "-x", package, root])


def ensure(suite: str, folder: str, architecture: str = "") -> Path:
    """Return build/debian/FOLDER with a Debian in it, which is made if it is not there.

    Parameters
    ----------
    suite : str
        The release's name.
    folder : str
        Each has its own.
    architecture : str
        That of another processor, as Debian names it.

    Raises
    ------
    SystemExit
        Without root, without debootstrap that apt-get could install, or if it fails.
    """
    root = shell.BUILD / "debian" / folder
    made = root / ".made"
    with shell.locked(f"debian-{folder}"):
        if shell.read(made) != INCLUDED:
            if os.geteuid() != 0:
                shell.die(f"--debian {suite}: chroot and debootstrap need root")
            wanted = Packages()
            if not shell.has("debootstrap"):
                wanted.need.append("debootstrap")
            wanted.install()
            shell.note(f"making a bare Debian in {root}")
            shell.remove(root)
            options = ["--variant=minbase", "--no-check-gpg", f"--include={INCLUDED}"]
            options += [f"--arch={architecture}", "--foreign"] if architecture else []
            root.parent.mkdir(parents=True, exist_ok=True)
            status, text = shell.output(
                ["debootstrap", *options, suite, root, mirror()], joined=True
            )
            if status != 0:
                shell.complain(text)
                shell.die(f"--debian {suite}: debootstrap failed")
            if architecture:
                unpack(root)
            made.write_text(INCLUDED, encoding="utf-8")
        if architecture:
            need_emulator(suite, architecture)
        for name in NETWORK:
            if Path("/", name).exists():
                shutil.copy(Path("/", name), root / name)
    return root


def inside(root: Path, shared: Path | None = None) -> tuple[str, ...]:
    """Return the start of a command that runs in a Debian, which sees one folder of ours."""
    seen = str(shared or shell.BUILD)
    return ("unshare", "--mount", "sh", "-c", ENTER, "sh", str(root), seen)


def python_of(suite: str, architecture: str = "", shared: Path | None = None) -> Python:
    """Return the interpreter of a Debian, which runs there.

    Parameters
    ----------
    suite, architecture : str
        As of ensure().
    shared : Path, optional
        The folder that it sees, if not build/.

    Raises
    ------
    SystemExit
        If the Debian cannot be made, or if it has a compiler.
    """
    root = ensure(suite, f"{suite}-{architecture}" if architecture else suite, architecture)
    status, found = shell.output(
        [*inside(root), "sh", "-c", "command -v cc gcc clang c99; true"], joined=True
    )
    if status != 0 or found:
        shell.die(f"--debian {suite}: it cannot be entered, or has a compiler: {found.strip()}")
    runner = (*inside(root, shared), "sh", "-c", NAMED, "sh")
    full = shell.output([*runner, "python", "-c", pythons.SHOW])[1].strip()
    name = f"{suite}-{pythons.minor(full)}"
    return Python(name, 0, full, False, True, f"python3 in {root}", runner)


def test_sdist(suite: str, sdist: Path) -> tuple[int, str]:
    """Unpack an sdist where nothing is installed, and run its tests; return their end."""
    root = ensure(suite, f"{suite}-tests")
    work = shell.anew(shell.BUILD / "wheel-check" / f"sdist-{suite}")
    folder = shell.extract(sdist, work)
    status, text = shell.output(
        [*inside(root), "env", "HOME=/root", "./dev", "test", "--quick"], joined=True, folder=folder
    )
    (work / "log.txt").write_text(text, encoding="utf-8", errors="surrogateescape")
    return status, "\n".join(text.splitlines()[-40:])
