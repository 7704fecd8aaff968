"""The MCP server: six tools, a resource and a prompt for one memory, or the nine tools of the reference server."""

from __future__ import annotations

from loom.lazy import lazy_names

# Not from typing: see `loom`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from loom.mcp.memory_server import TOOLS, make_server, serve
    from loom.mcp.reference import make_reference_server

__all__ = ["TOOLS", "make_reference_server", "make_server", "serve"]

_HOMES = {
    "loom.mcp.memory_server": ("TOOLS", "make_server", "serve"),
    "loom.mcp.reference": ("make_reference_server",),
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
