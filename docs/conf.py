"""Builds the documentation site from the pages beside this file. `make docs` runs it.

packaging/reference.py first writes the pages of `docs/reference` from the docstrings. They are
not under version control.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent / "packaging")]

import reference  # noqa: E402

import loom  # noqa: E402

reference.write(HERE / "reference")

project = "loom"
author = "the loom contributors"
copyright = f"2026, {author}"  # noqa: A001
release = version = loom.__version__

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_static_path = ["style"]
html_css_files = ["wide.css"]
html_title = f"loom {release}"
html_show_sourcelink = False
html_copy_source = False
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]


def link_to_the_repository(app: Sphinx, page: str, source: list[str]) -> None:
    """Links that leave this folder lead to the file in the repository."""
    source[0] = re.sub(r"\]\(\.\./", "](https://github.com/loomkeep/loom/blob/main/", source[0])


def setup(app: Sphinx) -> None:
    app.connect("source-read", link_to_the_repository)
