"""Memories as files of other forms: JSON Lines of our own, written and read again.

`record_lines` is the format, `exporting` writes it, and `importing` reads it into a memory. docs/importing.md
describes it. A copy of everything, with tiers, vectors and uses, is a snapshot (`loom.snapshots`).
"""

from __future__ import annotations

from loom.lazy import lazy_names

# Not from typing: see `loom`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from loom.importers.exporting import ExportResult, export_jsonl
    from loom.importers.importing import ImportResult, SkippedLine, import_jsonl

__all__ = ["ExportResult", "ImportResult", "SkippedLine", "export_jsonl", "import_jsonl"]

_HOMES = {
    "exporting": ("ExportResult", "export_jsonl"),
    "importing": ("ImportResult", "SkippedLine", "import_jsonl"),
}

__getattr__, __dir__ = lazy_names(__name__, {f"loom.importers.{home}": names for home, names in _HOMES.items()})
