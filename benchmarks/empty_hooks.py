"""Compiles empty_hooks.c on first use, into build/bench, and gives the module."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent


def _compile(source: Path, target: Path) -> None:
    compiler = shlex.split(os.environ.get("CC") or "cc")
    include = sysconfig.get_paths()["include"]
    target.parent.mkdir(parents=True, exist_ok=True)
    # Under another name first: two benchmarks may start at once.
    part = target.with_suffix(f".{os.getpid()}")
    flags = ["-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-isystem", include]
    subprocess.run([*compiler, *flags, str(source), "-o", str(part)], check=True)
    part.replace(target)


def load() -> ModuleType:
    source = HERE / "empty_hooks.c"
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    build = Path(os.environ.get("EVENTPROF_BENCH_BUILD", HERE.parent / "build" / "bench"))
    target = build / f"empty_hooks{suffix}"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        _compile(source, target)
    spec = importlib.util.spec_from_file_location("empty_hooks", target)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["empty_hooks"] = module
    return module
