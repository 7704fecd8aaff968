"""Anthropic's memory tool (`memory_20250818`) on a notebook. Needs the extra `[anthropic]`.

    tool = memory_tool(notebook)
    client.beta.messages.run_tools(model=..., messages=[...], tools=[tool]).until_done()

Files and answers are those of the SDK's own file tool. Every file is also a page of the notebook, so it is recalled,
versioned and forgotten like other pages. A file that the model deletes can be rolled back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom.errors import InvalidInput
from loom.notebook.pages import Page, Pages
from loom.storage.contract import Dimensions
from loom.types import Trust

if TYPE_CHECKING:
    from loom.notebook.book import Notebook

__all__ = ["async_memory_tool", "memory_tool"]

_KNOWN = Dimensions("subject", "state", "type")


def memory_tool(notebook: Notebook, base_path: Path | None = None) -> Any:
    """Return the tool for a client of the SDK: a subclass of the SDK's file tool.

    Its files are in the folder `memories` of `base_path`, by default `.notes/<agent>`.
    """
    return _tool(notebook, base_path, "BetaLocalFilesystemMemoryTool", _followed)


def async_memory_tool(notebook: Notebook, base_path: Path | None = None) -> Any:
    """Return the tool for an asynchronous client; see `memory_tool`."""
    return _tool(notebook, base_path, "BetaAsyncLocalFilesystemMemoryTool", _followed_later)


_CHANGES = ("view", "create", "str_replace", "insert", "delete", "rename", "clear_all_memory")


def _tool(notebook: Notebook, base_path: Path | None, name: str, followed: Callable[..., Any]) -> Any:
    """Return a tool of a subclass of the SDK's class `name`. After each command, the memory follows the files."""
    sdk = _sdk()
    pages = _MemoryPages(notebook, base_path)
    base = getattr(sdk, name)
    commands = {one: followed(getattr(base, one), pages, sdk) for one in _CHANGES}
    return type(f"Notebook{name}", (base,), commands)(base_path=str(pages.base))


def _followed(command: Callable[..., Any], pages: _MemoryPages, sdk: Any) -> Callable[..., Any]:
    """Wrap a command of the SDK's tool so that the memory follows its effect."""

    @wraps(command)
    def carried_out(self: Any, *given: Any) -> Any:
        _check(given, sdk)
        before = pages.files()
        answer = command(self, *given)
        pages.follow(before)
        return answer

    return carried_out


def _followed_later(command: Callable[..., Any], pages: _MemoryPages, sdk: Any) -> Callable[..., Any]:
    @wraps(command)
    async def carried_out(self: Any, *given: Any) -> Any:
        _check(given, sdk)
        before = await asyncio.to_thread(pages.files)
        answer = await command(self, *given)
        await asyncio.to_thread(pages.follow, before)
        return answer

    return carried_out


class _MemoryPages:
    """The files under `/memories`, as pages."""

    def __init__(self, notebook: Notebook, base: Path | None) -> None:
        self._root = notebook.work_dir if base is None else base
        self._pages = Pages(self._root, notebook.memory, notebook.work_dir / ".notes")
        self.base = notebook.work_dir / ".notes" / notebook.agent if base is None else base

    def files(self) -> dict[str, tuple[int, int]]:
        """Return the state of each file by its path in the notebook. The state changes whenever the file does."""
        found: dict[str, tuple[int, int]] = {}
        for path in (self.base / "memories").rglob("*"):
            if path.is_file() and not path.is_symlink() and not path.name.startswith(".tmp-"):
                state = path.stat()
                found[path.relative_to(self._root).as_posix()] = (state.st_ino, state.st_mtime_ns)
        return found

    def follow(self, before: dict[str, tuple[int, int]]) -> None:
        """Store the changes of a command in the memory."""
        after = self.files()
        for path, state in after.items():
            if before.get(path) != state:
                self._pages.read(Page(path, _KNOWN), Trust.AGENT)
        for path in before.keys() - after.keys():
            self._pages.retire(Page(path, _KNOWN))


def _check(given: tuple[Any, ...], sdk: Any) -> None:
    """Refuse a path such as `/memoriesX`, which the SDK's own tool accepts as a path in `/memories`."""
    for name in ("path", "old_path", "new_path"):
        path = getattr(given[0], name, None) if given else None
        if not isinstance(path, str):
            continue
        if path.startswith("/memories") and path[len("/memories") :][:1] not in ("", "/"):
            raise sdk.ToolError(f"Path must start with /memories, got: {path}")
        if "\0" in path:
            raise sdk.ToolError(f"Path {path!r} would escape /memories directory")


def _sdk() -> Any:
    try:
        # The SDK exports only its abstract tool under a public name; its file tool must be imported from here.
        return import_module("anthropic.lib.tools._beta_builtin_memory_tool")
    except ImportError:
        raise InvalidInput("the memory tool needs a package: pip install 'loomkeep[anthropic]'") from None
