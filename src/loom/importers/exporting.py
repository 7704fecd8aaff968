"""Exports of a memory: JSON Lines with every version of every record of its namespace, or a folder of Markdown."""

from __future__ import annotations

import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TextIO

from loom.checks import checked_path
from loom.errors import InvalidInput
from loom.importers.record_lines import as_line, end_line, header_line
from loom.memory.verbs import MemoryVerbs
from loom.protocol import new_id
from loom.storage.contract import Filter, Record, Store
from loom.storage.files import create_folder, disk_errors
from loom.storage.temporary import replacing

__all__ = ["ExportResult", "export_jsonl", "export_markdown"]

# A text has at most 16 MB, and usually a hundred bytes.
_PAGE = 64
_OPEN_FILES = 32
_DERIVED: Final = "derived.md"


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The outcome of an export. `derived` counts the derived records among `records`."""

    path: Path
    records: int
    derived: int
    size_bytes: int


def export_jsonl(
    memory: MemoryVerbs, path: str | Path, *, progress: Callable[[int], None] | None = None
) -> ExportResult:
    """Write every version of every record of a memory's namespace to a file, which is replaced when complete.

    The export shows one moment of the memory; other processes may keep writing. `progress` receives the number of
    written records. Records that are forgotten later stay in the file.
    """
    target = Path(checked_path(path, "the path of an export")).expanduser().absolute()
    _check_target(target, memory.store)
    records = derived = 0
    store = memory.store
    with disk_errors(f"the export {target} was not made"), replacing(target) as file, store.reading():
        file.write(header_line(store.namespace, store.clock()))
        for page in store.pages(Filter(history=True), limit=_PAGE, newest_first=False):
            derived += _write(store, page.records, file)
            records += len(page.records)
            if progress is not None and page.records:
                progress(records)
        file.write(end_line(records))
    return ExportResult(target, records, derived, target.stat().st_size)


def _write(store: Store, page: tuple[Record, ...], file: BinaryIO) -> int:
    """Write a page and return the number of its derived records."""
    ids = {record.id for record in page}
    pinned = {one.id for one in store.scan(Filter(ids=ids, pinned=True), limit=_PAGE)}
    found = 0
    for record in page:
        is_derived = store.is_drawn(record.seq)
        found += is_derived
        file.write(
            as_line(
                record,
                sources=store.neighbours(record.id)[0],
                pinned=record.id in pinned,
                derived=is_derived,
                ended_at=None if _has_successor(store, record) else record.superseded_at,
            )
        )
    return found


def _has_successor(store: Store, record: Record) -> bool:
    if record.superseded_at is None:
        return False
    newest = store.get(record.id)
    return newest is not None and newest.version > record.version


def _check_target(target: Path, store: Store) -> None:
    if target.is_dir():
        raise InvalidInput(f"{target} is a folder; name a file to export to")
    with suppress(OSError):
        if target.samefile(store.location):
            raise InvalidInput(f"{target} is the memory itself; name another file to export to")


# --- Markdown ---------------------------------------------------------------------------------------------


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
    """Files to append to, of which only a few are open at once."""

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
