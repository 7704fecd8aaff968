"""`loom notebook-watch`: print a line for each file that is read or written, until interrupted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import loom
from loom.cli.printing import print_answer
from loom.operations.notebook_answers import Synced
from loom.operations.notebook_verbs import open_notebook

if TYPE_CHECKING:
    from loom.cli.programs import Place

__all__ = ["run"]


def run(place: Place, folder: Path, agent: str | None, attach: Sequence[Path], write: bool) -> int:
    """Watch the notebook of a folder until the watch ends."""
    place.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    named = {"namespace": place.namespace, "node_id": place.node}
    options = {name: value for name, value in named.items() if value is not None}
    with loom.open(place.path, **options) as memory:  # type: ignore[arg-type]
        notebook = open_notebook(memory, folder, agent)
        for other in attach:
            notebook.attach(other, writable=write)
        for done in notebook.watch():
            print_answer(Synced.of(done), sys.stdout)
            sys.stdout.flush()
    return 0
