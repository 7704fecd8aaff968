"""Builds the documentation site: the pages beside this file, and a reference from the docstrings.

`make docs` runs it. The pages of the reference are written to `docs/reference`, which is not under version control.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "src"))

import loom  # noqa: E402

project = "loom"
author = "the loom contributors"
copyright = f"2026, {author}"  # noqa: A001
release = version = loom.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"loom {release}"
html_show_sourcelink = False
html_copy_source = False

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# Single backticks mean code, in the pages and in docstrings.
default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {"Any": "Any"}
autodoc_default_options = {"members": True, "inherited-members": "str,int,tuple,Exception,dict", "undoc-members": False}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

# The public modules, in the order in which a reader needs them.
PUBLIC = {
    "loom": "Everyday names",
    "loom.memory": "Memories, tiers, pools",
    "loom.context": "Prompts",
    "loom.agent": "Agents",
    "loom.notebook": "Notebooks",
    "loom.fractal": "Trees of nodes",
    "loom.importers": "Import and export",
    "loom.models.embedders": "Embedders",
    "loom.models.language_model": "Language models",
    "loom.recall.search": "Explained recall",
    "loom.storage": "Opening a store",
    "loom.storage.contract": "The storage contract",
    "loom.storage.values": "Values of the storage contract",
    "loom.types": "Types",
    "loom.protocol": "Tasks and clocks",
    "loom.events": "Events",
    "loom.settings": "Settings",
    "loom.errors": "Errors",
    "loom.testing": "A model server for tests",
}


def write_reference(app: Sphinx) -> None:
    """Write a page for each public module, with an entry for each of its public names."""
    folder = Path(app.srcdir, "reference")
    folder.mkdir(exist_ok=True)
    pages = {f"{module}.rst": reference_page(module, title) for module, title in PUBLIC.items()}
    pages["index.rst"] = "\n".join(
        ["Python reference", "================", "", "Every public name, from its docstring.", "", ".. toctree::", "   :maxdepth: 1", ""]
        + [f"   {module}" for module in PUBLIC]
    )
    for stale in {path.name for path in folder.iterdir()} - set(pages):
        (folder / stale).unlink()
    for name, text in pages.items():
        page = folder / name
        if not page.exists() or page.read_text(encoding="utf-8") != text + "\n":
            page.write_text(text + "\n", encoding="utf-8")


def reference_page(name: str, title: str) -> str:
    module = import_module(name)
    heading = f"{title}: {name}"
    lines = [heading, "=" * len(heading), "", f".. automodule:: {name}", "   :no-members:", "   :no-index:", ""]
    for public in module.__all__:
        value = getattr(module, public)
        if isinstance(value, type):
            kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
        else:
            kind = "autofunction" if callable(value) and hasattr(value, "__code__") else "autodata"
        lines += [f".. {kind}:: {name}.{public}", ""]
        if kind == "autodata":
            lines.insert(-1, "   :no-value:")
    return "\n".join(lines)


_LITERAL = re.compile(r"^( {4,})\S")


def as_restructured_text(
    app: Sphinx, what: str, name: str, subject: Any, options: Any, lines: list[str]
) -> None:
    """Docstrings are plain text with single backticks; an indented part is code."""
    written: list[str] = []
    in_code = False
    for place, line in enumerate(lines):
        indented = line.startswith("    ")
        if indented and not in_code and place and not lines[place - 1].strip():
            written += ["::", ""]
            in_code = True
        elif line.strip() and not indented:
            in_code = False
        written.append(line if in_code else escaped(line))
    lines[:] = written


def escaped(line: str) -> str:
    """A line of prose, in which only backticks mean anything."""
    parts = line.split("`")
    parts[::2] = [re.sub(r"([*|\\]|_(?=\W|$))", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", write_reference)
    app.connect("autodoc-process-docstring", as_restructured_text)
