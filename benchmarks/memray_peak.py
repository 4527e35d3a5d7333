"""Do eventprof and memray name the same holders of the peak, in the same order?

    python benchmarks/memray_peak.py [--cold] [PROGRAM...]

Each of three programs runs alone, with the same hashes, under ``eventprof.record(native=True)``
and under ``memray.Tracker(trace_python_allocators=True)``. Both see Python's allocators, arrays,
and what C libraries take from malloc. A holder is a function with its file: of Python's functions
the innermost at work or, of what was allocated without the interpreter's lock, the innermost whose
call was open. A holder below 1 % of the peak is in no order.

The program runs once before it is recorded; ``--cold``: it does not. memray itself has imported
jinja2, which then holds nothing; and memray counts the 1 GiB of addresses that pyarrow reserves at
its first use.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import measure

PROGRAMS = {
    "pandas": '''
import io
import pandas

def make(rows):
    return "shop,price\\n" + "\\n".join(f"{n % 40},{n * 1.5}" for n in range(rows))

def load(text):
    return pandas.read_csv(io.StringIO(text))

def label(frame):
    frame["label"] = ["high" if price > 1000 else "low" + str(price) for price in frame.price]
    return frame

def main():
    frame = label(load(make(200_000)))
    return frame.groupby("shop").price.sum()

''',
    "json": '''
import json

def rows():
    return [{"id": n, "name": f"row {n}", "tags": [str(n % 7), str(n % 11)]} for n in range(60_000)]

def index(parsed):
    by_tag = {}
    for row in parsed:
        for tag in row["tags"]:
            by_tag.setdefault(tag, []).append((row["id"], row["name"].upper()))
    return by_tag

def main():
    text = json.dumps(rows())
    parsed = json.loads(text)
    return index(parsed), text, parsed

''',
    "jinja2": '''
import jinja2

def items():
    return [{"name": f"item {n}", "price": n * 1.5, "tags": ["a", str(n)]} for n in range(20_000)]

def pages(template, rows):
    return [template.render(rows=rows[at:at + 2000]) for at in range(0, len(rows), 2000)]

def main():
    template = jinja2.Environment().from_string(
        "{% for row in rows %}<li>{{ row.name|upper }} {{ row.price }} "
        "{% for tag in row.tags %}<b>{{ tag }}</b>{% endfor %}</li>{% endfor %}")
    rows = items()
    return pages(template, rows), rows

''',
}  # fmt: skip

#: Two holders whose bytes differ by less are in no order.
TIE = 0.03
Holders = Counter[tuple[str, str]]


#: A smaller part of the peak is in no order.
SMALL = 0.01

DRIVER = """
import sys
from job import main

tool, cold = sys.argv[1:]
if cold != "cold":
    main()
if tool == "memray":
    import memray
    with memray.Tracker("job.bin", trace_python_allocators=True):
        main()
else:
    import eventprof
    with eventprof.record(native=True, output="job.epr"):
        main()
"""


def run(folder: Path, tool: str, cold: bool) -> None:
    """Run the program under a tool."""
    from eventprof.recording import native

    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    if tool == "eventprof":
        environment["LD_PRELOAD"] = native.library()
    command = [sys.executable, "driver.py", tool, "cold" if cold else "warm"]
    subprocess.run(command, cwd=folder, env=environment, check=True)


def _last_part(name: str | None) -> str:
    """Return the function's own name: memray has qualified names since Python 3.11 only."""
    return (name or "?").rpartition(".")[2]


def of_eventprof(folder: Path, cold: bool) -> tuple[int, Holders]:
    """Return the peak and its holders."""
    import eventprof

    run(folder, "eventprof", cold)
    trace = eventprof.open(folder / "job.epr")
    tree = trace._tree
    held: Holders = Counter()
    leaves = (tree.leaf_node, tree.leaf_function, tree.leaves["at_peak"])
    for node, function, size in zip(*(leaf.tolist() for leaf in leaves), strict=True):
        # Allocated without the interpreter's lock: no line, but the calls that were open are known.
        while function < 0 and node > 0:
            is_python = tree.functions[tree.function[node]][4] == "python"
            function, node = tree.function[node] if is_python else -1, tree.parent[node]
        name, _, file, _, _ = tree.functions[function] if function >= 0 else (None,) * 5
        held[_last_part(name), Path(file or "?").name] += size
    return int(tree.facts["peak"]), held


def of_memray(folder: Path, cold: bool) -> tuple[int, Holders]:
    """Return the peak and its holders."""
    import memray

    run(folder, "memray", cold)
    held: Holders = Counter()
    with memray.FileReader(str(folder / "job.bin")) as reader:
        for record in reader.get_high_watermark_allocation_records(merge_threads=True):
            stack = record.stack_trace(1)
            name, file, _ = stack[0] if stack else ("?", "?", 0)
            held[_last_part(name), Path(file).name] += record.size
        return reader.metadata.peak_memory, held


def in_order(names: list[tuple[str, str]], held: Holders) -> bool:
    """Whether the holders have these bytes in falling order, but for ties."""
    sizes = [held[name] for name in names]
    pairs = ((sooner, later) for index, sooner in enumerate(sizes) for later in sizes[index + 1 :])
    return all(later <= sooner * (1 + TIE) for sooner, later in pairs)


def compare(name: str, cold: bool) -> tuple[bool, str]:
    """Return whether both name the same holders in the same order, and a table of them."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "job.py").write_text(PROGRAMS[name], encoding="utf-8")
        (folder / "driver.py").write_text(DRIVER, encoding="utf-8")
        ours, of_ours = of_eventprof(folder, cold)
        theirs, of_theirs = of_memray(folder, cold)
    large = {
        which: [name for name, size in held.most_common() if size >= SMALL * whole]
        for which, held, whole in (("ours", of_ours, ours), ("theirs", of_theirs, theirs))
    }
    names = [*large["ours"], *(name for name in large["theirs"] if name not in large["ours"])]
    rows = [
        [
            " ".join(holder),
            f"{of_ours[holder] / 2**20:.2f}",
            f"{of_theirs[holder] / 2**20:.2f}",
            f"{of_ours[holder] / max(of_theirs[holder], 1):.3f}",
        ]
        for holder in names
    ]
    rows.append(["all", f"{ours / 2**20:.2f}", f"{theirs / 2**20:.2f}", f"{ours / theirs:.3f}"])
    same = in_order(large["ours"], of_theirs) and in_order(large["theirs"], of_ours)
    head = [f"{name}: MiB at the peak", "eventprof", "memray", "ratio"]
    return same, measure.table(head, rows)


def main() -> int:
    """Compare, and end with 1 if an order differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    parser.add_argument(
        "--cold", action="store_true", help="imports and first uses are recorded, too"
    )
    given = parser.parse_args()
    differ = 0
    for name in given.programs or PROGRAMS:
        same, table = compare(name, given.cold)
        differ += not same
        print(f"{table}\n{'the same order' if same else 'ANOTHER ORDER'}\n")
    return int(differ > 0)


if __name__ == "__main__":
    raise SystemExit(main())
