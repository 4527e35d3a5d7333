"""Types, rules and format of the page's modules: tsc, eslint, prettier, by npm in build/viewer."""

from __future__ import annotations

import shutil
from pathlib import Path

from dev import shell
from dev.results import Results

NPM = (
    *("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"),
    "--fetch-retries=1",  # without a network, it is told soon
)
MODULES = Path("python/eventprof/viewer/js")
SETTINGS = Path("tests/viewer")
CHECKS = {"tsc": ("-p", "."), "eslint": ("viewer",)}


def install(folder: Path) -> bool:
    """Install what tests/viewer/package.json names; False if that fails, as without a network."""
    wanted = shell.read(shell.ROOT / SETTINGS / "package.json")
    stamp = folder / "installed"
    if shell.read(stamp) == wanted:
        return True
    shell.anew(folder)
    (folder / "package.json").write_text(wanted, encoding="utf-8")
    status, text = shell.output(NPM, joined=True, folder=folder)
    (folder / "npm.log").write_text(text, encoding="utf-8")
    if status == 0:
        stamp.write_text(wanted, encoding="utf-8")
    return status == 0


def check(found: Results, *, fix: bool = False) -> None:
    """Run tsc and eslint on copies of the modules, beside their settings; prettier on the files."""
    names = ", ".join((*CHECKS, "prettier"))
    if not shell.has("npm"):
        shell.say(f"  --    {names}: no npm here")
        return
    folder = shell.BUILD / "viewer"
    with shell.locked("viewer"):
        if not install(folder):
            shell.say(f"  --    {names}: npm cannot install them (build/viewer/npm.log)")
            return
        modules = shell.anew(folder / "viewer")
        for source in (shell.ROOT / MODULES).glob("*.js"):
            shutil.copy(source, modules)
        for name in ("tsconfig.json", "eslint.config.js"):
            shutil.copy(shell.ROOT / SETTINGS / name, folder)
        for name, words in CHECKS.items():
            found.check(name, [folder / "node_modules/.bin" / name, *words], folder=folder)
    prettier = folder / "node_modules/.bin/prettier"
    words = ("--config", str(SETTINGS / "prettier.json"), "--log-level", "warn", str(MODULES))
    if fix:
        shell.run([prettier, "--write", *words])
    found.check("prettier", [prettier, "--check", *words])
