"""The folders of the core and of the extension may include only what lies below them (meson.build)."""

import ast
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable

import children
import pytest

ROOT = pathlib.Path(__file__).parents[3]
CORE = ROOT / "eventprof"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def folders_below() -> dict[str, list[str]]:
    text = (ROOT / "meson.build").read_text()
    table = re.search(r"^core_below = \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    assert table is not None
    rows = re.findall(r"^  '(\w+)': \[(.*?)\],$", table[1], re.MULTILINE)
    return {folder: re.findall(r"'(\w+)'", below) for folder, below in rows}


BELOW = folders_below()


def headers() -> dict[str, str]:
    """Header or table -> its folder."""
    found = {}
    for folder in BELOW:
        for path in (CORE / folder).iterdir():
            if path.suffix in (".h", ".def"):
                assert path.name not in found, f"two headers are called {path.name}"
                found[path.name] = folder
    return found


HEADERS = headers()


def test_every_folder_of_the_core_is_in_the_table():
    assert {path.name for path in CORE.iterdir() if path.is_dir()} == set(BELOW)
    assert [path.name for path in CORE.iterdir() if path.suffix in (".c", ".h", ".def")] == []


def test_a_folder_comes_after_what_it_may_include():
    seen: list[str] = []
    for folder, below in BELOW.items():
        assert set(below) <= set(seen), folder
        for lower in below:
            assert set(BELOW[lower]) <= set(below), (
                f"{folder} may include {lower}, but not all that it needs"
            )
        seen.append(folder)


@pytest.mark.parametrize("folder", BELOW)
def test_includes_obey_the_order(folder):
    allowed = {folder, *BELOW[folder]}
    for path in sorted((CORE / folder).glob("*.[ch]")):
        for name in INCLUDE.findall(path.read_text()):
            assert "/" not in name, f"{path.name} includes {name}: a path goes around the order"
            assert HEADERS[name] in allowed, f"{folder}/{path.name} includes {HEADERS[name]}/{name}"


def compiler() -> list[str]:
    command = os.environ.get("CC", "").split() or ["cc"]
    if shutil.which(command[0]) is None:
        pytest.skip("no C compiler")
    return command


def found_headers(paths: list[pathlib.Path], names: Iterable[str]) -> set[str]:
    """Which of these headers the compiler finds in the folders of an include path."""
    source = "".join(f'#if __has_include("{name}")\nfound {name}\n#endif\n' for name in names)
    done = children.run(
        *compiler(), *(f"-iquote{path}" for path in paths), "-E", "-P", "-xc", "-", stdin=source
    )
    return set(re.findall(r"^found (.*)$", done.stdout, re.MULTILINE))


@pytest.mark.parametrize("folder", BELOW)
def test_a_header_of_the_core_against_the_order_is_not_found(folder):
    """With the include path that meson.build gives the folder: those below it, and its own."""
    allowed = [folder, *BELOW[folder]]

    found = found_headers([CORE / name for name in allowed], HEADERS)

    assert found == {name for name, lives_in in HEADERS.items() if lives_in in allowed}


@pytest.mark.parametrize("folder", BELOW)
def test_every_folder_says_what_lives_there(folder):
    text = (CORE / folder / "README.md").read_text()
    assert 5 <= len(text.splitlines()) <= 8
    assert "May include:" in text


# ---- The extension: each folder may include those before it, and the core --------------------------

EXTENSION = ROOT / "python" / "src"


def extension_folders() -> list[str]:
    text = (ROOT / "meson.build").read_text()
    table = re.search(r"^  extension_sources = \{\n(.*?)^  \}", text, re.MULTILINE | re.DOTALL)
    assert table is not None
    return re.findall(r"^    '(\w+)': files\($", table[1], re.MULTILINE)


EXTENSION_FOLDERS = extension_folders()


def test_every_folder_of_the_extension_is_in_the_table():
    assert {path.name for path in EXTENSION.iterdir() if path.is_dir()} == set(EXTENSION_FOLDERS)
    assert [path.name for path in EXTENSION.iterdir() if path.suffix in (".c", ".h", ".def")] == []


@pytest.mark.parametrize("folder", EXTENSION_FOLDERS)
def test_includes_of_the_extension_obey_the_order(folder):
    lives_in = {
        path.name: name
        for name in EXTENSION_FOLDERS
        for path in (EXTENSION / name).iterdir()
        if path.suffix in (".h", ".def")
    }
    assert not set(lives_in) & set(HEADERS), "a header of the core has that name"
    allowed = EXTENSION_FOLDERS[: EXTENSION_FOLDERS.index(folder) + 1]
    for path in sorted((EXTENSION / folder).glob("*.[ch]")):
        for name in INCLUDE.findall(path.read_text()):
            if name in HEADERS or name == "../../eventprof/include/eventprof.h":
                continue
            assert lives_in[name] in allowed, (
                f"{folder}/{path.name} includes {lives_in[name]}/{name}"
            )


@pytest.mark.parametrize("folder", EXTENSION_FOLDERS)
def test_a_header_of_the_extension_against_the_order_is_not_found(folder):
    """With the include path that meson.build gives the folder: those before it, and its own."""
    allowed = EXTENSION_FOLDERS[: EXTENSION_FOLDERS.index(folder) + 1]
    headers = {
        name: {path.name for path in (EXTENSION / name).glob("*.h")} for name in EXTENSION_FOLDERS
    }

    found = found_headers([EXTENSION / name for name in allowed], set().union(*headers.values()))

    assert found == set().union(*(headers[name] for name in allowed))


# ---- What meson makes of it ------------------------------------------------------------------------

LIBRARIES = {f"eventprof_{name}": CORE / name for name in BELOW} | {
    f"extension_{name}": EXTENSION / name for name in EXTENSION_FOLDERS
}


def meson(*arguments: object) -> subprocess.CompletedProcess[str]:
    beside = pathlib.Path(sys.executable).parent
    path = f"{beside}{os.pathsep}{os.environ['PATH']}"
    command = shutil.which("meson", path=path)
    if command is None:
        pytest.skip("no meson")
    return children.run(command, *arguments, status=None, PATH=path)


@pytest.fixture(scope="module")
def configured(tmp_path_factory):
    """A build directory, configured and empty."""
    compiler()
    build = tmp_path_factory.mktemp("layers")
    done = meson("setup", build, ROOT, "-Dtests=disabled", "-Doptimization=0")
    assert done.returncode == 0, done.stdout + done.stderr
    return build


@pytest.mark.thorough
def test_meson_looks_for_headers_in_the_folders_below_alone(configured):
    seen = set()
    for entry in json.loads((configured / "compile_commands.json").read_text()):
        folder = (configured / entry["file"]).resolve().parent
        name = next((name for name, path in LIBRARIES.items() if path == folder), None)
        if name is None or "_shim" in entry["output"]:
            continue
        words = shlex.split(entry["command"])
        looked_in = {pathlib.Path(word[7:]) for word in words if word.startswith("-iquote")}
        if folder.parent == CORE:
            allowed = {CORE / lower for lower in BELOW[folder.name]}
        else:
            before = EXTENSION_FOLDERS[: EXTENSION_FOLDERS.index(folder.name)]
            allowed = {CORE / lower for lower in BELOW} | {EXTENSION / lower for lower in before}
        # A file's own folder is looked in by itself.
        assert looked_in - {folder} == allowed, entry["file"]
        beside = {word[2:] for word in words if word.startswith("-I")}
        assert not [path for path in beside if (configured / path).resolve() in LIBRARIES.values()]
        seen.add(name)
    assert seen == set(LIBRARIES)


DECLARED = re.compile(
    r"^(?!static|typedef|return|#)\w[\w ]*[ *](ep_\w+)\([^;{]*\)(?: __attribute__\(.*\))?;",
    re.MULTILINE,
)
DEFINED = re.compile(r"^(ep_\w+)\([^;]*?\)\n\{", re.MULTILINE)


@pytest.mark.parametrize(
    "folder",
    [*(CORE / name for name in BELOW), *(EXTENSION / name for name in EXTENSION_FOLDERS)],
    ids=lambda folder: f"{folder.parent.name}/{folder.name}",
)
def test_what_a_folder_declares_it_defines(folder):
    """Else its library would need one above it, which only the linker would find."""
    sources = "".join(path.read_text() for path in folder.glob("*.[ch]"))
    defined = set(DEFINED.findall(sources))
    for header in sorted(folder.glob("*.h")):
        for name in DECLARED.findall(header.read_text()):
            assert name in defined, f"{header.name} declares {name}, which no file here defines"


@pytest.mark.parametrize("folder", EXTENSION_FOLDERS)
def test_every_folder_of_the_extension_says_what_lives_there(folder):
    text = (EXTENSION / folder / "README.md").read_text()
    assert 5 <= len(text.splitlines()) <= 8
    assert "May include:" in text


def test_checkers_of_invariants_are_in_sanitized_builds_alone():
    from eventprof import _core

    code = pathlib.Path(_core.__file__).read_bytes()
    sanitized = b"__asan_" in code or b"__tsan_" in code
    assert (b"eventprof: %s:%d: does not hold: %s" in code) == sanitized


def test_versions_of_python_are_known_to_compat_alone():
    for path in sorted(EXTENSION.rglob("*.[ch]")):
        if path.parent.name != "compat":
            assert "PY_VERSION_HEX" not in path.read_text(), path.relative_to(ROOT)


#: Longer than others: one chain of functions, which nobody else calls; apart they needed a header of their own.
ONE_CHAIN = {"eventprof/files/file_read.c": 2100}


@pytest.mark.parametrize("folder", ["eventprof", "python", "tests", "tools", "benchmarks"])
def test_no_file_is_too_long_to_be_of_one_idea(folder):
    endings = (".c", ".h", ".js", ".mjs", ".py", ".pyi")
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in endings]
    assert files
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files}
    assert {path: count for path, count in lines.items() if count > ONE_CHAIN.get(path, 1300)} == {}


# ---- The tests ---------------------------------------------------------------------------------------


def test_no_test_module_imports_another():
    """What two of them need is in a module of its own: a file can be read, moved and run alone."""
    tests = ROOT / "tests" / "python"
    imports = {
        f"{path.relative_to(tests)}: {line.strip()}"
        for path in tests.rglob("*.py")
        for line in path.read_text(encoding="utf-8").split("\n")
        if re.match(r"\s*(from|import)\s+(\w+\.)*test_\w+\s*(import|$|,)", line)
    }
    assert imports == set()


def test_import_brings_numpy_and_nothing_else_of_the_kind():
    code = (
        "import sys, eventprof; print([m for m in ('pandas', 'polars', 'pyarrow', 'rich', "
        "'duckdb', 'numpy.ma', 'asyncio', 'threading') if m in sys.modules])"
    )
    done = children.program(code)
    known = children.program(code.replace("eventprof", "numpy"))
    # A numpy that does not bring threading itself is not what is tested.
    assert set(ast.literal_eval(done.stdout)) <= set(ast.literal_eval(known.stdout))
