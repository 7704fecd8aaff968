"""Imports of histories of other programs, and exports and imports in loom's own format.

`histories` imports every format that `recognising` knows. Each format has a module that reads it into `messages`;
`source_files` opens the files, and `json_reader` reads them within bounds. For loom's own JSON Lines, `record_lines`
defines the format, `exporting` writes it and `importing` reads it; docs/importing.md describes them. A complete copy,
with tiers, vectors and uses, is a snapshot (`loom.snapshots`).
"""

from __future__ import annotations

from loom.lazy import lazy_names

# Not from typing: see `loom`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from loom.importers.exporting import ExportResult, export_jsonl, export_markdown
    from loom.importers.histories import HistoryResult, import_history
    from loom.importers.importing import ImportResult, SkippedLine, import_jsonl
    from loom.importers.messages import ImportProblem

__all__ = [
    "ExportResult",
    "HistoryResult",
    "ImportProblem",
    "ImportResult",
    "SkippedLine",
    "export_jsonl",
    "export_markdown",
    "import_history",
    "import_jsonl",
]

_HOMES = {
    "exporting": ("ExportResult", "export_jsonl", "export_markdown"),
    "histories": ("HistoryResult", "import_history"),
    "importing": ("ImportResult", "SkippedLine", "import_jsonl"),
    "messages": ("ImportProblem",),
}

__getattr__, __dir__ = lazy_names(__name__, {f"loom.importers.{home}": names for home, names in _HOMES.items()})
