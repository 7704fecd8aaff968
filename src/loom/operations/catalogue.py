"""All operations by name, in the order of the help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from loom.operations import everyday_verbs, knowledge_verbs, notebook_verbs, surroundings, upkeep
from loom.operations.answers import Answer
from loom.operations.table import Operation, entry_of

__all__ = ["OPERATIONS", "WAITING"]

_FUNCTIONS: tuple[Callable[..., Answer], ...] = (
    everyday_verbs.remember,
    everyday_verbs.recall,
    everyday_verbs.context,
    everyday_verbs.get,
    everyday_verbs.list_,
    everyday_verbs.history,
    everyday_verbs.matrix,
    everyday_verbs.update,
    everyday_verbs.forget,
    everyday_verbs.feedback,
    knowledge_verbs.facts,
    knowledge_verbs.summaries,
    knowledge_verbs.instructions,
    knowledge_verbs.confirm,
    knowledge_verbs.withdraw,
    knowledge_verbs.undo,
    knowledge_verbs.compact,
    knowledge_verbs.flush,
    knowledge_verbs.tiers,
    knowledge_verbs.promote,
    knowledge_verbs.demote,
    knowledge_verbs.pin,
    knowledge_verbs.unpin,
    notebook_verbs.notebook_sync,
    notebook_verbs.notebook_files,
    notebook_verbs.notebook_diff,
    notebook_verbs.notebook_rollback,
    notebook_verbs.notebook_restore,
    notebook_verbs.notebook_forget,
    notebook_verbs.notebook_keep,
    notebook_verbs.notebook_use,
    notebook_verbs.notebook_compare,
    notebook_verbs.notebook_export,
    notebook_verbs.notebook_import,
    upkeep.stats,
    upkeep.namespaces,
    upkeep.tenants,
    upkeep.check,
    upkeep.backup,
    upkeep.snapshot,
    upkeep.restore,
    upkeep.migrate,
    upkeep.export,
    upkeep.import_,
    upkeep.archive,
    upkeep.vacuum,
    surroundings.settings,
    surroundings.trust,
)

OPERATIONS: Final[Mapping[str, Operation]] = {
    entry.name: entry for entry in (entry_of(function) for function in _FUNCTIONS)
}

WAITING: Final[Mapping[str, str]] = {}
"""Planned operations that do not exist yet, with the requirement of each."""
