"""The orchestrator, under the name that document 002 gives. It lives in `loom.context`, above.

Names are resolved when they are first used, so that importing `loom.memory` does not import `loom.context`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.lazy import lazy_names

if TYPE_CHECKING:
    from loom.context import ContextOrchestrator

__all__ = ["ContextOrchestrator"]

__getattr__, __dir__ = lazy_names(__name__, {"loom.context": __all__})
