"""For pytest in a process of its own: the SDK's tests of its file tool, with the notebook's tool in its place."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from pathlib import Path
from typing import Any

from loom.notebook import Notebook
from loom.notebook.memory_tool import async_memory_tool, memory_tool

_folder = tempfile.TemporaryDirectory()
_notebook = Notebook(_folder.name, agent="claude")


def _sync(base_path: str = "./memory") -> Any:
    return memory_tool(_notebook, Path(base_path))


def _async(base_path: str = "./memory") -> Any:
    return async_memory_tool(_notebook, Path(base_path))


def pytest_collection_modifyitems(items: list[Any]) -> None:
    for module in {item.module for item in items}:
        module.BetaLocalFilesystemMemoryTool = _sync
        module.BetaAsyncLocalFilesystemMemoryTool = _async


def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    """Run tests that are coroutines, as the SDK's own set-up does with a plugin."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


def pytest_sessionfinish() -> None:
    _notebook.close()
    _folder.cleanup()
