"""Makes doc/benchmarks-results.rst and its plots from runs. It says if the machine was loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plots

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "doc" / "benchmarks-results.rst"
PLOTS = ROOT / "doc" / "plots"


def describe(run: dict[str, Any]) -> str:
    about = run["about"]
    versions = ", ".join(
        f"{name} {version}" for name, version in about["versions"].items() if name != "python"
    )
    state = "a loaded machine: ratios hold, nanoseconds do not" if about["loaded"] else "quiet"
    modified = ", with changes" if about["modified"] else ""
    quick = " A quick run (fewer programs, rounds and events)." if about.get("quick") else ""
    if about.get("rounds"):
        quick += f" {about['rounds']} rounds."
    return (
        f"CPython {about['versions']['python']} on {about['processor']}, {about['processors']} "
        f"processors ({state}; load {about['load_before'][0]:.1f} before, "
        f"{about['load_after'][0]:.1f} after), {about['system']}, {about['date'][:10]}, commit "
        f"{about['commit']}{modified}.{quick} {versions}."
    )


def goals_table(run: dict[str, Any]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    rows = [{"what": "goal", "goal": "must reach", "measured": "measured", "verdict": ""}]
    # Of a run of one question, what it answers.
    partly = len(run["results"]) < 3
    found = [row for row in run["goals"] if not partly or row["measured"] != "not measured"]
    for row in rows + found:
        cells = [row["what"].removeprefix("... "), row["goal"], row["measured"], row["verdict"]]
        if row["what"].startswith("... "):
            cells[0] = f"... {cells[0]}"
        lines.append(f"   * - {cells[0]}")
        lines += [f"     - {cell}".rstrip() for cell in cells[1:]]
    return "\n".join(lines)


def _title(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"


def _name(run: dict[str, Any]) -> str:
    version = f"CPython {run['about']['versions']['python']}"
    if not run["results"].get("scale", {}).get("gil", True):
        return f"{version}, without the GIL"
    return f"{version}, retrieval alone" if list(run["results"]) == ["retrieve"] else version


def page(runs: list[dict[str, Any]]) -> str:
    parts = [".. Written by ./dev bench --publish; see benchmarks.rst.\n"]
    for run in runs:
        parts += [
            _title(_name(run), "-"),
            describe(run) + "\n",
            goals_table(run) + "\n",
        ]
        for file in plots.draw(run, PLOTS).values():
            parts.append(f".. image:: {file.relative_to(PAGE.parent)}\n")
        for name, text in run["text"].items():
            indented = "\n".join(f"   {line}".rstrip() for line in text.splitlines())
            parts += [_title(name, "^"), f".. code-block:: text\n\n{indented}\n"]
        for name, problem in run.get("failed", {}).items():
            parts += [_title(name, "^"), f"Failed: {problem}\n"]
    return "\n".join(parts)


def publish(runs: list[dict[str, Any]]) -> None:
    PAGE.write_text(page(runs))
    print(f"wrote {PAGE.relative_to(ROOT)}, {PLOTS.relative_to(ROOT)}/")
