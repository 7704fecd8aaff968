"""The notebook: memory as Markdown that people and agents read, edit and run."""

from __future__ import annotations

from loom.lazy import lazy_names

# Not from typing: see `loom`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from loom.notebook.book import Notebook
    from loom.notebook.machine import Machine, Outcome, Report
    from loom.notebook.pages import Page, Synced
    from loom.notebook.process import TaskProcess, new_process
    from loom.notebook.sessions import SessionNote

__all__ = [
    "Machine",
    "Notebook",
    "Outcome",
    "Page",
    "Report",
    "SessionNote",
    "Synced",
    "TaskProcess",
    "new_process",
]

_HOMES = {
    "loom.notebook.book": ("Notebook",),
    "loom.notebook.machine": ("Machine", "Outcome", "Report"),
    "loom.notebook.pages": ("Page", "Synced"),
    "loom.notebook.process": ("TaskProcess", "new_process"),
    "loom.notebook.sessions": ("SessionNote",),
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
