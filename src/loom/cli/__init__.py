"""The command `loom`: every operation of the table, and the programs of the command line."""

from __future__ import annotations

from loom.lazy import lazy_names

# Not from typing: see `loom`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from loom.cli.arguments import parser
    from loom.cli.command import main
    from loom.cli.programs import COMMANDS

__all__ = ["COMMANDS", "main", "parser"]

_HOMES = {"loom.cli.arguments": ("parser",), "loom.cli.command": ("main",), "loom.cli.programs": ("COMMANDS",)}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
