"""The notebook: a memory as Markdown files that people and agents read, edit and run."""

from __future__ import annotations

from loom.lazy import lazy_names

# Not from typing: see `loom`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from loom.notebook.book import Notebook, NotebookForgotten
    from loom.notebook.folders import FolderKind, OtherFolder
    from loom.notebook.machine import Machine, Outcome, Report
    from loom.notebook.packages import Package, PackageImport
    from loom.notebook.pages import Page, Synced
    from loom.notebook.process import TaskProcess, new_process
    from loom.notebook.sessions import SessionNote
    from loom.notebook.variants import Trial

__all__ = [
    "FolderKind",
    "Machine",
    "Notebook",
    "NotebookForgotten",
    "OtherFolder",
    "Outcome",
    "Package",
    "PackageImport",
    "Page",
    "Report",
    "SessionNote",
    "Synced",
    "TaskProcess",
    "Trial",
    "new_process",
]

_HOMES = {
    "loom.notebook.book": ("Notebook", "NotebookForgotten"),
    "loom.notebook.folders": ("FolderKind", "OtherFolder"),
    "loom.notebook.machine": ("Machine", "Outcome", "Report"),
    "loom.notebook.packages": ("Package", "PackageImport"),
    "loom.notebook.pages": ("Page", "Synced"),
    "loom.notebook.process": ("TaskProcess", "new_process"),
    "loom.notebook.sessions": ("SessionNote",),
    "loom.notebook.variants": ("Trial",),
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
