"""What a run allocates, by kind and size."""

from __future__ import annotations

import gc
from collections import Counter

import footprint
import numpy as np
import raw


def allocation_histogram(kinds, backend, run=footprint.run):
    run()
    rec = raw.recorder(kinds | raw.MEMORY, backend=backend)
    gc.collect()
    gc.disable()  # whether a collection falls into the run depends on the tests before
    try:
        with rec:
            kept = run()
    finally:
        gc.enable()
    trace = raw.capture(rec)
    del kept
    kind, size = trace.events("kind"), trace.events("size")
    memory = kind >= raw.KIND["MALLOC_RAW"]
    kind, size = kind[memory], np.where(np.isin(kind[memory], FREE_KINDS), -1, size[memory])
    pairs, counts = np.unique(np.stack([kind.astype(np.int64), size]), axis=1, return_counts=True)
    return Counter(
        {
            (raw.IDENTIFIER[k], s): n
            for (k, s), n in zip(pairs.T.tolist(), counts.tolist(), strict=True)
        }
    )


FREE_KINDS = [number for number, name in raw.IDENTIFIER.items() if "FREE" in name]
