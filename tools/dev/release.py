"""``./dev release``: see that the last commit can be released; ``--tag`` tags it.

Publishing is done by .github/workflows/release.yml when the tag is pushed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from dev import docs, pythons, shell, wheel
from dev.results import Results

#: A release, or a candidate for one.
VERSION = r"\d+\.\d+\.\d+(rc\d+)?"
#: Pages that must be there, each with a word that it must have.
PAGES = {
    "CONTRIBUTING.rst": "./dev test",
    "SECURITY.md": "report",
    "doc/versions.rst": "0.1",
    "CITATION.cff": "cff-version",
    "LICENSE": "MIT",
}


def read(root: Path, name: str) -> str:
    """Return the text of a file of the project, or '' if there is none."""
    return shell.read(root / name)


def version_of(root: Path) -> str:
    """Return the version that meson.build names: all others are made from it."""
    found = re.search(r"^\s*version: '([^']+)',$", read(root, "meson.build"), re.MULTILINE)
    return "" if found is None else found[1]


# ---- What can be wrong -------------------------------------------------------------------------


def version_faults(root: Path) -> list[str]:
    """Return places that name another version."""
    version = version_of(root)
    faults = []
    if re.fullmatch(VERSION, version) is None:
        faults.append(f"meson.build: version '{version}' is not X.Y.Z or X.Y.ZrcN")
    cited = re.search(r"^version: \"?([^\"\n]+)", read(root, "CITATION.cff"), re.MULTILINE)
    if cited is None or cited[1] != version:
        faults.append(f"CITATION.cff: version is not {version}")
    return faults


def changelog_faults(root: Path) -> list[str]:
    """Return what keeps CHANGELOG.rst from being that of this release."""
    version = version_of(root)
    text = read(root, "CHANGELOG.rst")
    headings = re.findall(r"^(\S.*)\n-{3,}$", text, re.MULTILINE)
    if not headings:
        return ["CHANGELOG.rst: no heading of a version"]
    if headings[0].split()[0] == version:
        return []
    return [f"CHANGELOG.rst: the first heading is '{headings[0]}', not '{version} (DATE)'"]


def metadata_faults(root: Path) -> list[str]:
    """Return what pyproject.toml lacks to be shown by an index."""
    project = tomllib.loads(read(root, "pyproject.toml"))["project"]
    faults = []
    if not any(name in project.get("urls", {}) for name in ("Repository", "Source")):
        faults.append(
            "pyproject.toml: [project.urls] has no Repository, the project's public address"
        )
    classifiers = project.get("classifiers", [])
    for name in (*pythons.TESTED, "3.14", "3.15"):
        if f"Programming Language :: Python :: {name}" not in classifiers:
            faults.append(f"pyproject.toml: no classifier for Python {name}")
    return faults


def page_faults(root: Path) -> list[str]:
    """Return pages that are missing, or lack what they are for."""
    return [
        f"{name}: missing, or without '{word}'"
        for name, word in PAGES.items()
        if word not in read(root, name)
    ]


def tag_faults(root: Path) -> list[str]:
    """Return what keeps the last commit from having the tag of this version."""
    git = ["git", "-C", str(root)]
    tag = f"v{version_of(root)}"
    status, head = shell.output([*git, "rev-parse", "HEAD"])
    if status != 0:
        return ["not a git checkout: there is nothing to tag"]
    faults = []
    if changed := shell.output([*git, "status", "--porcelain"])[1]:
        faults.append(f"not committed: {', '.join(line[3:] for line in changed.splitlines()[:5])}")
    status, tagged = shell.output([*git, "rev-parse", "-q", "--verify", f"{tag}^{{commit}}"])
    if status == 0 and tagged != head:
        faults.append(f"{tag} is the tag of another commit, {tagged[:12]}: a release never moves")
    return faults


#: What is looked at in a moment, each by its name.
QUICK: dict[str, Callable[[Path], list[str]]] = {
    "version": version_faults,
    "changelog": changelog_faults,
    "metadata": metadata_faults,
    "pages of the project": page_faults,
    "tag": tag_faults,
}


# ---- The verb ----------------------------------------------------------------------------------


def check_quickly(found: Results, root: Path) -> None:
    """Count each quick check."""
    for name, look in QUICK.items():
        faults = look(root)
        found.check(name, lambda faults=faults: (int(bool(faults)), "\n".join(faults)))  # type: ignore[misc]


def main(arguments: list[str]) -> int:
    """Run the verb."""
    for word in arguments:
        if word not in ("--check", "--tag"):
            shell.misuse(f"release: {word}?")
    version = version_of(shell.ROOT)
    shell.say(f"== release {version}")
    found = Results()
    check_quickly(found, shell.ROOT)
    if arguments:
        docs.check_pages(found, pythons.find().choose(None), werror=True)
        shell.say("== artefacts")
        found.failed += wheel.main(["--check"])
    shell.say(f"{found.passed} passed, {found.failed} failed")
    if found.failed:
        return 1
    if "--tag" in arguments:
        shell.must(["git", "tag", "-a", f"v{version}", "-m", f"eventprof {version}"])
        shell.say(f"tagged v{version}; to publish it: git push REMOTE v{version}")
    return 0
