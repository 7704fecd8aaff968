"""Writing a memory as JSON Lines: every version of every record of its namespace, one page in memory at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from loom.checks import checked_path
from loom.errors import InvalidInput
from loom.importers.record_lines import as_line, end_line, header_line
from loom.memory.verbs import MemoryVerbs
from loom.storage.contract import Filter, Record, Store
from loom.storage.files import disk_errors
from loom.storage.temporary import replacing

__all__ = ["ExportResult", "export_jsonl"]

# A text has at most 16 MB, and usually a hundred bytes.
_PAGE = 64


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The outcome of an export. `derived` counts records that were made from others."""

    path: Path
    records: int
    derived: int
    size_bytes: int


def export_jsonl(
    memory: MemoryVerbs, path: str | Path, *, progress: Callable[[int], None] | None = None
) -> ExportResult:
    """Write every version of every record of a memory's namespace to a file, which is replaced when complete.

    The export is a consistent snapshot; other processes may keep writing. `progress` receives the number of written
    records. `forget` does not reach the file.
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
