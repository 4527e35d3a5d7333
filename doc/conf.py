"""How Sphinx builds these pages: ``./dev docs``."""

from __future__ import annotations

import re
import textwrap

from docutils import nodes

import eventprof

project = "eventprof"
author = "the eventprof developers"
copyright = author
version = release = eventprof.__version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc"]
templates_path: list[str] = []
exclude_patterns = ["benchmarks-results.rst"]  # a part of another page

# Every `name` in single backticks is a reference, and one that leads nowhere fails the build. There
# is no intersphinx: building fetches nothing.
nitpicky = True
default_role = "py:obj"
nitpick_ignore_regex = [
    # What is not of this project.
    (r"py:.*", r"(threading|collections|os|numpy|pandas|polars|pyarrow|duckdb|cpyquickhelper)\..*"),
    # The bases of classes and exceptions.
    (r"py:class", r"(Exception|RuntimeError|ValueError|object)"),
]
autodoc_typehints = "none"  # the docstrings say it
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "furo"
html_title = f"eventprof {version}"
html_static_path = ["static"]
html_css_files = ["eventprof.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
highlight_language = "none"  # of what is not marked: mostly commands
pygments_style = "friendly"
pygments_dark_style = "monokai"
trim_doctest_flags = True
smartquotes_action = "De"  # dashes and dots; quotes are those of code
toc_object_entries_show_parents = "hide"


#: Classes that users call: the others are made by functions, whose parameters are documented.
CALLED = {
    "ASGIMiddleware", "WSGIMiddleware", "EventProfiler", "EventProfilerDebug", "WithEventProfiler",
}  # fmt: skip
#: What the Attributes section of a class held, by the class's name.
attributes: dict[str, list[tuple[str, str, str]]] = {}


def section(text, title):
    """Return a section of a docstring as a match: 1 is what it says."""
    return re.search(rf"^{title}\n-+\n((?:.*\n?)*?)(?=^\S.*\n-+\n|\Z)", text, re.MULTILINE)


def entries(text):
    """Split what a section says into (names, type, meaning)."""
    return [
        (names, kind or "", textwrap.dedent(meaning).strip())
        for names, kind, meaning in re.findall(
            r"^(\S.*?)(?: : (.*))?\n((?:[ ]+.*\n?|\n)*)", text, re.MULTILINE
        )
    ]


def before_numpydoc(app, what, name, obj, options, lines):
    """Write a parameter as *x*, not as a reference; take attributes out, which become targets."""
    text = "\n".join(lines)
    parameters = section(text, "Parameters")
    if parameters is not None:
        for names, _, _ in entries(parameters[1]):
            for parameter in names.split(", "):
                text = text.replace(f"`{parameter}`", f"*{parameter}*")
                text = text.replace(f"`*{parameter}*`", f"``{parameter}``")
        if what == "class" and obj.__name__ not in CALLED:
            text = text.replace(section(text, "Parameters")[0], "")
    found = section(text, "Attributes")
    if found is not None:
        attributes[name] = entries(found[1])
        text = text.replace(found[0], "")
    lines[:] = text.split("\n")


def after_numpydoc(app, what, name, obj, options, lines):
    """Add the attributes, each one a target."""
    for names, kind, meaning in attributes.get(name, ()):
        first, *others = names.split(", ")
        lines += ["", f".. attribute:: {first}", *(f"               {other}" for other in others)]
        lines += ["", f"   *{kind}.* {meaning.splitlines()[0]}"]
        lines += [f"   {line}" for line in meaning.splitlines()[1:]] + [""]


def shorten_signature(app, what, name, obj, options, signature, returns):
    """Leave out the arguments of what users do not call."""
    if what == "class" and obj.__name__ not in CALLED:
        return "", ""
    return None


def find_here(app, env, node, contnode):
    """Look a name up as a user would write it, whichever module its docstring is in."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or target.startswith("eventprof."):
        return None
    domain = env.get_domain("py")
    for parent in ("eventprof", "eventprof.trace", "eventprof.tables.kinds"):
        full = f"{parent}.{target}"
        if full in domain.objects:
            return domain.resolve_xref(
                env, node["refdoc"], app.builder, "obj", full, node, contnode
            )
    return None


def show_dashes(app, doctree):
    """Show a "-" alone in a cell as that, not as a list of one empty thing."""
    for cell in doctree.findall(nodes.entry):
        if cell.children and isinstance(cell[0], nodes.bullet_list) and not cell.astext().strip():
            cell[:] = [nodes.paragraph("", "\N{EN DASH}")]


def setup(app):
    # numpydoc has 500.
    app.connect("autodoc-process-docstring", before_numpydoc, priority=400)
    app.connect("autodoc-process-docstring", after_numpydoc, priority=600)
    app.connect("autodoc-process-signature", shorten_signature, priority=400)
    app.connect("doctree-read", show_dashes)
    app.connect("missing-reference", find_here)
