"""The table of operations that all surfaces offer.

`OPERATIONS` maps each name to its `Operation`. Command line, MCP and HTTP are generated from it. If a surface leaves
out an operation, `Operation.elsewhere` states the reason.
"""

from __future__ import annotations

from loom.lazy import lazy_names

# Not from typing: see `loom`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from loom.operations.answers import Answer
    from loom.operations.catalogue import OPERATIONS, WAITING
    from loom.operations.table import About, Needs, Operation, Parameter

__all__ = ["OPERATIONS", "WAITING", "About", "Answer", "Needs", "Operation", "Parameter"]

_HOMES = {
    "answers": ("Answer",),
    "catalogue": ("OPERATIONS", "WAITING"),
    "table": ("About", "Needs", "Operation", "Parameter"),
}

__getattr__, __dir__ = lazy_names(__name__, {f"loom.operations.{home}": names for home, names in _HOMES.items()})
