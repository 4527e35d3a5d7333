"""What tests that preload the library for C allocations share."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

from eventprof import _core

HERE = Path(__file__).parent
# The sanitizers have an allocator of their own, which must be the first that is loaded.
SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "") or "sanitizer" in (
    sysconfig.get_config_var("CONFIG_ARGS") or ""
)
#: Without it, what records blocks of C libraries refuses: musl, and no Linux.
HAS_LIBRARY = Path(_core.__file__).with_name("_shim.so").exists()

#: What children that import helpers have besides the environment of this process.
WITH_HELPERS = {"PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{HERE}"}
