"""The knowledge source, under the name that document 002 gives. It lives in `loom.context`, above.

Names are resolved when they are first used, so that importing `loom.memory` does not import `loom.context`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.memory import from_context

if TYPE_CHECKING:
    from loom.context import KnowledgeContextSource

__all__ = ["KnowledgeContextSource"]


def __getattr__(name: str) -> Any:
    return from_context(__name__, name, __all__)
