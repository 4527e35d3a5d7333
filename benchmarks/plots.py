"""Plots of the results of runs, for doc/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

OWN = "#1f6f8b"
OTHERS = "#b0b7bf"
EMPTY = "#d9c27a"
# The order of the bars; what was not measured is left out.
SHOWN = (
    "empty calls",
    "calls",
    "python calls",
    "filtered",
    "allocations",
    "both",
    "VizTracer",
    "cProfile",
    "yappi",
    "sys.setprofile(py)",
    "sys.monitoring(py)",
    "memray",
    "memray, python",
    "tracemalloc",
    "cProfile + memray, python",
    "cProfile + tracemalloc",
    "cpyquickhelper",
)
OURS = {
    "calls": "eventprof, calls",
    "python calls": "eventprof, Python calls only",
    "filtered": "eventprof, all filtered out",
    "allocations": "eventprof, allocations",
    "both": "eventprof, calls + allocations",
    "empty calls": "an empty hook",
}


def _figure(height: float) -> Any:
    import matplotlib

    matplotlib.use("Agg")
    # The same file for the same figures.
    matplotlib.rcParams["svg.hashsalt"] = "eventprof"
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, directory: Path, name: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    return path


def programs(run: dict[str, Any], directory: Path, name: str) -> Path:
    """How many times as long whole programs take; the lines: quartiles over the programs."""
    factors = run["results"]["programs"]["factor"]
    mean = run["results"]["programs"]["mean_factor"]
    names = [tool for tool in SHOWN if tool in mean][::-1]
    figure, axes = _figure(0.6 + 0.3 * len(names))
    for place, tool in enumerate(names):
        value = mean[tool]["median"]
        spread = sorted(row[tool]["median"] for row in factors.values())
        quarter = len(spread) // 4
        color = EMPTY if tool.startswith("empty") else OWN if tool in OURS else OTHERS
        axes.barh(place, value, color=color)
        axes.plot([spread[quarter], spread[-1 - quarter]], [place, place], color="black", lw=1)
        axes.text(value, place + 0.28, f" {value:.2f}", va="center", fontsize=8)
    axes.set_yticks(range(len(names)), [OURS.get(tool, tool) for tool in names], fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set_xticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
    axes.set_xlim(left=0.9)
    axes.set_xlabel(f"times as long as the bare program (geometric mean of {len(factors)})")
    axes.set_title(f"CPython {run['about']['versions']['python']}", fontsize=9)
    return _save(figure, directory, name)


def hooks(run: dict[str, Any], directory: Path, name: str) -> Path:
    """Nanoseconds an event: of the empty hook, and what recording adds."""
    rows = [
        (f"{workload}: {tool}", figures)
        for workload, row in run["results"]["hooks"].items()
        for tool, figures in row["tools"].items()
        if "over_empty" in figures
    ][::-1]
    figure, axes = _figure(0.8 + 0.2 * len(rows))
    for place, (_, figures) in enumerate(rows):
        empty = figures["empty_ns_per_event"]
        axes.barh(place, empty, color=EMPTY)
        axes.barh(place, figures["ns_over_empty"], left=empty, color=OWN)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=7)
    axes.set_xlabel("ns of CPU time an event: the interpreter's hook, and eventprof in it")
    axes.set_title(f"CPython {run['about']['versions']['python']}", fontsize=9)
    return _save(figure, directory, name)


def retrieve(run: dict[str, Any], directory: Path, name: str) -> Path:
    """Time of retrieval by events: straight lines of slope 1."""
    figure, axes = _figure(3.6)
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in run["results"]["retrieve"]["columns"].values():
        for what, seconds in row["seconds"].items():
            if what in ("all", "pair calls", "pair allocations"):
                lines.setdefault(what, []).append((row["events"], seconds))
    for what, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), "o-", ms=3, lw=1, label=what)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("events")
    axes.set_ylabel("s of CPU time")
    axes.legend(fontsize=8, frameon=False)
    return _save(figure, directory, name)


DRAWN = {"programs": programs, "hooks": hooks, "retrieve": retrieve}


def draw(run: dict[str, Any], directory: Path) -> dict[str, Path]:
    """Draw the plots of the questions that the run answers: question -> file."""
    version = run["about"]["versions"]["python"].rsplit(".", 1)[0]
    return {
        question: plot(run, directory, f"{question}-{version}")
        for question, plot in DRAWN.items()
        if question in run["results"]
    }
