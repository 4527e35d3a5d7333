"""The page: a trace as one self-contained HTML file. Start reading in page.py, then main.js.

``data.py`` turns tables into compressed sections, ``page.py`` joins them with the code. The code is
plain ES modules in ``js/``: ``data.js`` and ``blocks.js`` decode the sections, ``lod.js`` sums them
up, ``draw.js`` fills lines of pixels. Each other module draws one part of the page from the state
in ``state.js``. There are two smaller pages: ``flamegraph.py`` with ``graph.js`` for one recording
or two, and ``heatmap.py`` with ``heat.js``.
"""

from .page import MODULES, load, open_page, page, parts, show, write

__all__ = ["MODULES", "load", "open_page", "page", "parts", "show", "write"]
