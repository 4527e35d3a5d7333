"""The page: a trace as one self-contained HTML file. Start reading in page.py, then main.js.

``data.py`` turns tables into compressed sections, ``page.py`` joins them with the code. The code is
plain ES modules: ``data.js`` decodes, ``lod.js`` summarises, ``draw.js`` fills lines of pixels, the
other modules draw one part of the page each from the state in ``state.js``. Smaller pages are
``flamegraph.py`` with ``graph.js``, of one recording or two, and ``heatmap.py`` with ``heat.js``.
"""

from .page import MODULES, load, open_page, page, parts, write

__all__ = ["MODULES", "load", "open_page", "page", "parts", "write"]
