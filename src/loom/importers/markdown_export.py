"""Export of a memory as Markdown: a folder with a file for each day, and one for derived records."""

from __future__ import annotations

import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TextIO

from loom.checks import checked_path
from loom.errors import InvalidInput
from loom.importers.exporting import ExportResult
from loom.memory.verbs import MemoryVerbs
from loom.protocol import new_id
from loom.storage.contract import Filter, Record
from loom.storage.files import create_folder, disk_errors

__all__ = ["export_markdown"]

_PAGE = 64
_OPEN_FILES = 32
_DERIVED: Final = "derived.md"


def export_markdown(
    memory: MemoryVerbs, path: str | Path, *, progress: Callable[[int], None] | None = None
) -> ExportResult:
    """Write the current version of every memory to a new folder, which appears when complete.

    Messages are in the file of their day, in the order of writing, under a heading with time, speaker and session.
    Facts, summaries and instructions are in `derived.md`. Raises `InvalidInput` if the folder exists and is not
    empty. Records that are forgotten later stay in the files.
    """
    target = Path(checked_path(path, "the path of an export")).expanduser().absolute()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise InvalidInput(f"{target} exists; name a new folder to export Markdown to")
    store = memory.store
    records = derived = 0
    with disk_errors(f"the export {target} was not made"), _new_folder(target) as folder, ExitStack() as stack:
        files = stack.enter_context(_DayFiles.opened(folder))
        with store.reading():
            pages = store.pages(Filter(), limit=_PAGE, newest_first=False)
            for record in (record for page in pages for record in page.records):
                is_derived = store.is_drawn(record.seq)
                files.write(_DERIVED if is_derived else f"{record.created_at:%Y-%m-%d}.md", _entry(record))
                records, derived = records + 1, derived + is_derived
                if progress is not None and records % _PAGE == 0:
                    progress(records)
    return ExportResult(target, records, derived, sum(one.stat().st_size for one in target.iterdir()))


def _entry(record: Record) -> str:
    """Return an entry: a heading with time, speaker and session, and the text, fenced if it holds headings."""
    who = record.name or record.role or str(record.kind)
    where = f", session {record.session_id}" if record.session_id else ""
    heading = " ".join(f"{record.created_at:%Y-%m-%d %H:%M} {who}{where} ({record.trust})".split())
    text = record.content
    if any(line.lstrip().startswith(("#", "---", "===")) for line in text.splitlines()):
        longest = max((len(run) for run in text.split("\n") if set(run) == {"`"}), default=2)
        fence = "`" * max(3, longest + 1)
        text = f"{fence}text\n{text}\n{fence}"
    return f"## {heading}\n\n{text}\n\n"


class _DayFiles:
    """Files that are appended to. Only a few are open at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: OrderedDict[str, TextIO] = OrderedDict()

    @classmethod
    @contextmanager
    def opened(cls, folder: Path) -> Iterator[_DayFiles]:
        files = cls(folder)
        try:
            yield files
        finally:
            for file in files._open.values():
                file.close()

    def write(self, name: str, text: str) -> None:
        file = self._open.pop(name, None)
        if file is None:
            if len(self._open) >= _OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            path = self._folder / name
            is_new = not path.exists()
            file = path.open("a", encoding="utf-8", newline="\n")
            if is_new:
                file.write(f"# {Path(name).stem}\n\n")
        self._open[name] = file
        file.write(text)


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """Create a folder, accessible to its owner only, that becomes `target` if the block succeeds."""
    folder = target.with_name(f".{target.name[:100]}.{new_id()}.tmp")
    try:
        create_folder(folder, 0o600)
        yield folder
        folder.replace(target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
