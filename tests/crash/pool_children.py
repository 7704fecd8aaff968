"""Child processes that share a pool: `python -m tests.crash.pool_children <role> <json>`.

What a child has written it says on a line of its own as soon as it is acknowledged.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from loom.memory.shared_pool import SharedMemoryPool
from tests.crash.children import say
from tests.crash.processes import Child

__all__ = ["PoolChild"]

_LONGEST_LIFE_S = 1800.0


class PoolChild(Child):
    """A process that plays one of these roles."""

    roles = "tests.crash.pool_children"


async def count(path: str, key: str, writer: str, times: int) -> None:
    """Add one to a key by compare-and-set, and print the new version."""
    with SharedMemoryPool("team", store=path) as pool:
        say("open")
        for _ in range(times):
            entry = await pool.update(key, lambda value: (value or 0) + 1, writer)
            say(entry.version)


async def follow(path: str, prefix: str, until: int) -> None:
    """Say the version of every change that a watch gives, up to one."""
    with SharedMemoryPool("team", store=path) as pool:
        async with pool.watch(prefix) as changes:
            say("open")
            async for change in changes:
                say(change.version)
                if change.version >= until:
                    return


def main() -> None:
    faulthandler.dump_traceback_later(_LONGEST_LIFE_S, exit=True)
    role: Callable[..., Coroutine[Any, Any, None]] = globals()[sys.argv[1]]
    asyncio.run(role(**json.loads(sys.argv[2])))


if __name__ == "__main__":
    main()
