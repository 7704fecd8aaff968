"""`loom mcp`: serve the memory of a place, which is opened when it is first needed."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom.cli.programs import Place

if TYPE_CHECKING:
    from loom.everyday import Memory

__all__ = ["run"]


def run(place: Place, read_only: bool, reference: Path | None) -> int:
    """Serve until the client closes the input. Return the exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="loom: %(message)s")
    if reference is not None:
        from loom.mcp.memory_server import serve
        from loom.mcp.reference import GraphFile, make_reference_server

        serve(make_reference_server(GraphFile(reference)))
        return 0
    from loom.mcp.memory_server import MemoryHolder, make_server, serve

    holder = MemoryHolder(lambda: _opened(place, read_only), place.path.exists)
    serve(make_server(holder, read_only=read_only), holder.close)
    return 0


def _opened(place: Place, read_only: bool) -> Memory:
    import loom

    if not read_only:
        place.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    options: dict[str, Any] = {"namespace": place.namespace, "node_id": place.node, "read_only": read_only or None}
    return loom.open(place.path, **{name: value for name, value in options.items() if value is not None})
