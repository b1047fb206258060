"""Settings of Sphinx for the reference: Markdown pages and docstrings (`make reference`).

The source folder is the repository, since pages link to one another across folders and to code.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import quire  # noqa: E402

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Quire"
version = release = quire.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "scripts.markdown_docstrings"]
root_doc = "docs/index"

PAGES = ("docs", "bench", "examples")  # folders with pages; the others are not walked through
include_patterns = ["*.md", "docs/**.md", "bench/results/*.md", "examples/**.md"]
exclude_patterns = [
    path.name for path in ROOT.iterdir() if path.is_dir() and path.name not in PAGES
]

smartquotes = False  # "earliest" is what a program writes
maximum_signature_line_length = 88

html_theme = "alabaster"
html_theme_options = {"page_width": "72rem", "sidebar_width": "16rem"}
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html"]}
html_copy_source = False

myst_heading_anchors = 6

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {
    "members": True,
    "undoc-members": True,
    "show-inheritance": True,
    "special-members": "__version__",
    # What stands in Python's own classes is not repeated.
    "inherited-members": "object, BaseException, Sequence, tuple, str, int, dict, Enum",
}


def setup(app: Sphinx) -> None:
    """Let no garbage be collected while it builds: its millions of nodes stay to the end."""
    gc.disable()
    app.connect("build-finished", lambda _app, _error: gc.enable())
