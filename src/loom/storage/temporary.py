"""Temporary files beside the file that they will replace: their names, and sweeping what a killed process left."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from loom.protocol import new_id

__all__ = ["temporary_beside"]

# A process of another container looks dead here, so its file must also have been left alone for this long.
_UNTOUCHED_S = 3600.0


def temporary_beside(target: Path) -> Path:
    """A new name beside a file, with this process in it. Removes the files of dead processes for the same target."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.([0-9]+)-[0-9A-Z]+\.tmp(-journal|-wal|-shm)?")
    with suppress(OSError):  # a folder that cannot be listed or written: making the file will say so
        for path in target.parent.iterdir():
            found = pattern.fullmatch(path.name)
            if found and not _is_alive(int(found[1])) and time.time() - path.lstat().st_mtime > _UNTOUCHED_S:
                path.unlink(missing_ok=True)
    return target.with_name(f".{target.name}.{os.getpid()}-{new_id()}.tmp")


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
