"""Imports of `loom-jsonl` files: the records keep their ids, and their versions keep their order.

A line is only ever treated as data. A line that violates the format is skipped and reported with its number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from loom.batches import batches
from loom.checks import checked_path
from loom.drafts import Attributes
from loom.errors import Conflict, InvalidInput
from loom.importers.json_reader import LARGEST_VALUE, Line, lines_of
from loom.importers.record_lines import RecordLine, check_header, parsed
from loom.memory.verbs import MemoryVerbs
from loom.storage.contract import MAX_TEXT_BYTES, UNCONFIRMED, Draft, Reads, Record, Transaction
from loom.storage.files import disk_errors
from loom.types import MemoryTier, MemoryType, Trust

__all__ = ["ImportResult", "SkippedLine", "import_jsonl", "may_instruct"]

_BATCH_RECORDS = 256
_BATCH_BYTES = 4 * 1024 * 1024
_MOST_TOLD = 100


class SkippedLine(NamedTuple):
    """A line that was not imported, and the reason."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The outcome of importing a file: the counts of new, existing, derived and skipped versions.

    `problems` has the first hundred skipped lines. `complete` is False if the file was truncated.
    """

    records: int
    present: int
    derived: int
    skipped: int
    complete: bool
    problems: tuple[SkippedLine, ...] = ()


def import_jsonl(
    memory: MemoryVerbs,
    path: str | Path,
    *,
    dry_run: bool = False,
    progress: Callable[[int], None] | None = None,
) -> ImportResult:
    """Import the records of an export into a memory, in transactions of a few hundred.

    A version that exists already is left unchanged, so an import may be repeated, continued after a crash, or run in
    two processes at once. A version whose id has another text in this memory is skipped. Derived lines are not
    written: this memory itself derives facts, summaries and instructions from the records. `progress` receives the
    number of finished lines. A dry run writes nothing. Raises `InvalidInput`, before anything is written, for a file
    that is not an export.
    """
    source = Path(checked_path(path, "the path of an import")).expanduser()
    running = _Import(memory, dry_run)
    with disk_errors(f"{source} cannot be read"), source.open("rb") as file:
        check_header(_first_line(file))
        lines = lines_of(file, after=1)
        for batch in batches(
            lines, lambda line: len(line.text or b""), most_items=_BATCH_RECORDS, full_at=_BATCH_BYTES
        ):
            running.take(batch)
            if progress is not None:
                progress(running.lines)
    return running.result()


# --- lines ---------------------------------------------------------------------------------------------------


def _first_line(file: BinaryIO) -> bytes:
    line = file.readline(LARGEST_VALUE + 1)
    if not line.strip():
        raise InvalidInput("the file is not an export of loom: its first line is empty")
    if len(line) > LARGEST_VALUE:
        raise InvalidInput("the file is not an export of loom: its first line does not end")
    return line


# --- records -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Import:
    """A running import. The counts include only committed lines."""

    memory: MemoryVerbs
    dry_run: bool = False
    lines: int = 0
    told_at_end: int | None = None
    records: int = 0
    present: int = 0
    derived: int = 0
    skipped: int = 0
    problems: list[SkippedLine] = field(default_factory=list)

    def take(self, batch: Sequence[Line]) -> None:
        """Import a batch of lines in one transaction."""
        wanted: list[tuple[int, RecordLine]] = []
        for number, text in batch:
            if (record := self._read(number, text)) is not None:
                wanted.append((number, record))
        if wanted:
            self._write(wanted)
        self.lines += len(batch)

    def result(self) -> ImportResult:
        read = self.records + self.present + self.derived + self.skipped
        if self.told_at_end is None:
            self._tell(self.lines + 1, "the file ends without its last line: it is truncated")
        elif self.told_at_end != read:
            self._tell(self.lines + 1, f"the file states {self.told_at_end:,} records but has {read:,}")
        complete = self.told_at_end == read
        return ImportResult(self.records, self.present, self.derived, self.skipped, complete, tuple(self.problems))

    def _read(self, number: int, text: bytes | None) -> RecordLine | None:
        """Return the record of a line that must be written, or None."""
        try:
            found = _record_of(text)
        except InvalidInput as error:
            self._skip(number, str(error))
            return None
        if isinstance(found, int):
            self.told_at_end = found
            return None
        if found is not None and found.derived:
            self.derived += 1
            return None
        return found

    def _skip(self, number: int, reason: str) -> None:
        self.skipped += 1
        self._tell(number, reason)

    def _tell(self, number: int, reason: str) -> None:
        if len(self.problems) < _MOST_TOLD:
            self.problems.append(SkippedLine(number, reason))

    def _write(self, wanted: Sequence[tuple[int, RecordLine]]) -> None:
        if self.dry_run:
            self._settle([(number, self._foreseen(record)) for number, record in wanted])
            return
        outcomes: list[tuple[int, bool | str]] = []
        with self.memory.store.transaction() as transaction:
            nodes: set[str] = set()
            for number, record in wanted:
                outcome = self._write_one(transaction, record)
                outcomes.append((number, outcome))
                if outcome is True:
                    nodes.add(record.node)
            self.memory.tiers.make_room_of(transaction, nodes)
        self._settle(outcomes)

    def _settle(self, outcomes: Sequence[tuple[int, bool | str]]) -> None:
        for number, outcome in outcomes:
            if isinstance(outcome, str):
                self._skip(number, outcome)
            elif outcome:
                self.records += 1
            else:
                self.present += 1

    def _foreseen(self, line: RecordLine) -> bool | str:
        """Return the outcome of a version in a dry run, in which the lines before it are not written."""
        try:
            draft = self._draft(line)
        except (InvalidInput, Conflict) as error:
            return str(error)
        newest = self.memory.store.get(line.id)
        if newest is None or line.version > newest.version:
            return True
        return False if _is_there(self.memory.store, newest, line, draft) else "its id has another text here"

    def _write_one(self, transaction: Transaction, line: RecordLine) -> bool | str:
        """Write a version. Returns True if it is new, False if it exists, or the reason why it cannot be written."""
        try:
            draft = self._draft(line)
            newest = transaction.get(line.id)
            if newest is not None and line.version <= newest.version:
                return False if _is_there(transaction, newest, line, draft) else "its id has another text here"
            if line.version > 1 and (newest is None or line.version > newest.version + 1):
                return f"version {line.version:,} of its id lacks the version before it"
            written = transaction.append([draft])[0]
        except (InvalidInput, Conflict) as error:  # this draft is refused, and nothing of it was written
            return str(error)
        if not written.created:
            return "it equals the version before it"
        if line.kind == MemoryType.FACT:
            transaction.enter([written.seq], MemoryTier.L4, line.node, "imported")
        if may_instruct(draft):
            transaction.enter([written.seq], UNCONFIRMED, line.node, "imported", [0])
        if line.ended_at is not None:
            transaction.supersede(written.seq, written.seq, line.ended_at)
        if line.pinned:
            transaction.pin(line.id, True)
        return True

    def _draft(self, line: RecordLine) -> Draft:
        said = Attributes(
            line.role,
            line.name,
            line.session_id,
            line.created_at,
            line.importance,
            line.metadata,
            line.trust,
            line.kind,
            line.dimensions,
        )
        draft = self.memory.drafter.text(line.content, line.id, said, line.data, revises=True)
        tier = None if line.kind == MemoryType.FACT else draft.tier
        return draft._replace(node=line.node, sources=line.sources, tier=tier)


def may_instruct(draft: Draft) -> bool:
    """Return whether a message is in the user's own words. Only such a message can be a standing instruction."""
    return draft.trust == Trust.USER and draft.kind == MemoryType.MESSAGE and draft.role in (None, "user")


def _record_of(text: bytes | None) -> RecordLine | int | None:
    """Return the record of a line, the count in the last line, or None for an empty line."""
    if text is None:
        raise InvalidInput(f"it is longer than {LARGEST_VALUE:,} bytes")
    found = parsed(text) if text.strip() else None
    if isinstance(found, RecordLine) and len(found.content.encode()) > MAX_TEXT_BYTES:
        raise InvalidInput(f"its text is larger than the {MAX_TEXT_BYTES:,} bytes of one record")
    return found


def _is_there(reads: Reads, newest: Record, line: RecordLine, draft: Draft) -> bool:
    """Return whether the version of a line is already stored with the same content."""
    versions = [newest] if newest.version == line.version else reads.history(line.id)
    there = next((one for one in versions if one.version == line.version), None)
    return there is not None and _told(there) == _told(draft)


def _told(one: Record | Draft) -> tuple[object, ...]:
    return one.content, one.kind, one.data, one.created_at, dict(one.metadata), one.importance
