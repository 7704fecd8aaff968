"""Importing a history: files of any known format become memories, in transactions of a few hundred messages.

The same file always gives the same ids, and messages that are already stored are left unchanged. An import may
therefore be repeated, continued after a kill, and run in two processes at once. At most one batch and the value being
read are held in memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple

from loom.checks import checked_path
from loom.drafts import Attributes
from loom.errors import InvalidInput, LoomError, StoreUnavailable
from loom.importers import markdown_notes
from loom.importers.importing import import_jsonl, may_instruct
from loom.importers.messages import HistoryMessage, ImportProblem, SourceFile
from loom.importers.recognising import AGENTS, FORMATS, OWN, HistoryFormat, recognised
from loom.importers.source_files import UnreadableFile, source_files
from loom.memory.verbs import MemoryVerbs
from loom.protocol import checked_time, closest
from loom.storage.contract import UNCONFIRMED, Draft, Reads, Record, Transaction
from loom.text.sanitizer import ContentSanitizer, Finding, SensitiveKind

__all__ = ["BATCH_CHARS", "HistoryResult", "HistoryWriter", "import_history"]

_BATCH_MESSAGES = 256
BATCH_CHARS: Final = 4 * 1024 * 1024
"""A transaction ends after this many characters, even if it has few messages."""

_MOST_TOLD = 100


@dataclass(frozen=True, slots=True)
class HistoryResult:
    """The outcome of importing a history.

    The counts are of messages: `records` are new, `present` were stored already, `outside` were left out by `since`
    or `project`, `skipped` could not be imported, and `masked` had secrets that were masked. `formats` counts the
    files of each format, and `passed_over` the files of no known format. `problems` has the first hundred problems.
    `complete` is False if a file is truncated or could not be read to its end. After a dry run, `records` counts the
    messages that would be new.
    """

    formats: dict[str, int]
    passed_over: int
    records: int
    present: int
    outside: int
    skipped: int
    masked: int
    complete: bool
    dry_run: bool
    derived: int = 0
    problems: tuple[ImportProblem, ...] = ()


def import_history(
    memory: MemoryVerbs,
    path: str | Path | None = None,
    *,
    format_name: str | None = None,
    since: datetime | str | None = None,
    project: str | None = None,
    raw: bool = False,
    dry_run: bool = False,
    progress: Callable[[int], None] | None = None,
) -> HistoryResult:
    """Import a file, a zip archive or a folder of any known format into a memory.

    The format is recognised from the contents; `format_name` restricts the import to one format. Without a path,
    `format_name` must be `claude-code` or `codex`, and the history of that agent on this machine is imported. `since`
    and `project` (a folder or its name) exclude all other messages. Secrets are masked unless `raw` is True. A dry
    run reads and counts, and writes nothing. `progress` receives the number of processed messages.

    Raises `InvalidInput`, before anything is written, if no file has a known format.
    """
    if format_name is not None and format_name not in FORMATS:
        raise InvalidInput(
            f"there is no format {format_name!r}; {closest(format_name, FORMATS)}the formats are {', '.join(FORMATS)}"
        )
    moment = None if since is None else checked_time(since, "since")
    source = (
        _own_history(format_name) if path is None else Path(checked_path(path, "the path of an import")).expanduser()
    )
    problems: list[ImportProblem] = []
    found, passed_over = _recognise(source, format_name, problems)
    if [of.name for _, of in found] == [OWN]:
        return _own_export(memory, source, moment is not None or project is not None, dry_run, progress)
    if not found:
        raise InvalidInput(_not_recognised(source, format_name, problems))
    writer = HistoryWriter(memory, raw=raw, dry_run=dry_run, progress=progress)
    for problem in problems:
        writer.problem(problem)
    formats: dict[str, int] = {}
    for file, of in found:
        formats[of.name] = formats.get(of.name, 0) + 1
        if moment is not None and of.name in AGENTS and file.modified < moment:
            continue  # any addition to such a file would have changed its time
        _read(file, of, writer, _Wanted(moment, project))
    writer.flush()
    return writer.result(formats, passed_over)


def _own_history(format_name: str | None) -> Path:
    if format_name not in AGENTS:
        raise InvalidInput(
            f"name a file or a folder to import, or one of the formats {', '.join(AGENTS)} to import the history of "
            "that program on this machine"
        )
    folder = AGENTS[format_name](os.environ)
    if not folder.is_dir():
        raise StoreUnavailable(
            f"{folder}, where {FORMATS[format_name]} are expected, does not exist; name their folder instead"
        )
    return folder


def _recognise(
    source: Path, wanted: str | None, problems: list[ImportProblem]
) -> tuple[list[tuple[SourceFile, HistoryFormat]], int]:
    """Return the files of known formats and the number of others. Markdown next to another format is not imported."""
    found: list[tuple[SourceFile, HistoryFormat]] = []
    passed_over = 0
    for file in source_files(source):
        if isinstance(file, ImportProblem):
            problems.append(file)
            continue
        try:
            of = recognised(file, wanted)
        except UnreadableFile as error:
            problems.append(ImportProblem(file.name, "", str(error), is_cut=True))
            continue
        if of is None:
            passed_over += 1
        else:
            found.append((file, of))
    data = [one for one in found if one[1].name != markdown_notes.NAME]
    return (data, passed_over + len(found) - len(data)) if data else (found, passed_over)


def _not_recognised(source: Path, wanted: str | None, problems: Sequence[ImportProblem]) -> str:
    what = f"holds none of the {FORMATS[wanted]}" if wanted else "has no known format"
    reasons = f" ({problems[0].file}: {problems[0].reason})" if problems else ""
    return f"{source} {what}{reasons}; the formats are {', '.join(FORMATS)}, see docs/importing.md"


def _own_export(
    memory: MemoryVerbs, source: Path, is_narrowed: bool, dry_run: bool, progress: Callable[[int], None] | None
) -> HistoryResult:
    if is_narrowed:
        raise InvalidInput("since and project do not apply to an export of loom: it is imported as a whole")
    done = import_jsonl(memory, source, dry_run=dry_run, progress=progress)
    problems = (ImportProblem(source.name, f"line {one.line:,}", one.reason) for one in done.problems)
    return HistoryResult(
        {OWN: 1},
        0,
        done.records,
        done.present,
        0,
        done.skipped,
        0,
        done.complete,
        dry_run,
        done.derived,
        (*problems,),
    )


# --- reading -------------------------------------------------------------------------------------------------


class _Wanted(NamedTuple):
    since: datetime | None
    project: str | None

    def has(self, message: HistoryMessage, moment: datetime) -> bool:
        if self.since is not None and moment < self.since:
            return False
        return self.project is None or (message.project is not None and _is_of(message.project, self.project))


def _is_of(folder: str, project: str) -> bool:
    """Return whether a folder is a project or inside it. A project without a slash is the name of a folder."""
    if os.sep not in project and project not in (".", "..", "~"):
        return project in PurePath(folder).parts
    place = os.path.realpath(os.path.expanduser(project))
    return PurePath(folder).is_relative_to(place)


def _read(file: SourceFile, of: HistoryFormat, writer: HistoryWriter, wanted: _Wanted) -> None:
    try:
        with file.open() as opened:
            for one in of.read(file, opened):
                if isinstance(one, ImportProblem):
                    writer.problem(one)
                elif wanted.has(one, one.created_at or file.modified):
                    writer.add(one, of.name, file)
                else:
                    writer.outside += 1
    except UnreadableFile as error:
        writer.problem(ImportProblem(file.name, "", str(error), is_cut=True))


# --- writing -------------------------------------------------------------------------------------------------


# Mail addresses and telephone numbers are not masked, because people ask a memory for them.
_MASKED_KINDS: Final = frozenset({SensitiveKind.API_KEY, SensitiveKind.SECRET, SensitiveKind.CREDIT_CARD})
# A secret has a digit, or follows a word such as "password".
_MAY_HOLD_ONE: Final = re.compile(
    r"[0-9]|pass|pwd|key|secret|token|://|PRIVATE|密|口令|令牌|金[钥鑰]|[权權]杖|通行", re.IGNORECASE
)
_DEEPEST: Final = 100


def _masked(value: Any, sanitizer: ContentSanitizer, findings: list[Finding], depth: int = 0) -> Any:
    """Mask the secrets in every text of a value, including parts, calls and results, and add them to `findings`."""
    if isinstance(value, str):
        found = sanitizer.inspect(value) if _MAY_HOLD_ONE.search(value) else None
        if found is None or not found.findings:
            return value
        findings += found.findings
        return found.text
    if depth > _DEEPEST:
        raise InvalidInput(f"it is nested deeper than {_DEEPEST} levels")
    if isinstance(value, Mapping):
        return {key: _masked(one, sanitizer, findings, depth + 1) for key, one in value.items()}
    return [_masked(one, sanitizer, findings, depth + 1) for one in value] if isinstance(value, list) else value


class _Waiting(NamedTuple):
    draft: Draft
    masked: bool
    file: str
    position: str


@dataclass(slots=True)
class HistoryWriter:
    """Writes messages into a memory, one batch per transaction. The counts include only committed messages."""

    memory: MemoryVerbs
    raw: bool = False
    dry_run: bool = False
    progress: Callable[[int], None] | None = None
    within: Callable[[Transaction], None] | None = None
    """Additional work in the transaction of a batch."""
    records: int = 0
    present: int = 0
    outside: int = 0
    skipped: int = 0
    masked: int = 0
    problems: list[ImportProblem] = field(default_factory=list)
    complete: bool = True
    done: int = 0
    _sanitizer: ContentSanitizer = field(default_factory=lambda: ContentSanitizer(kinds=_MASKED_KINDS))
    _batch: dict[str, _Waiting] = field(default_factory=dict)
    _chars: int = 0

    def add(self, message: HistoryMessage, format_name: str, file: SourceFile) -> None:
        """Add a message to the current batch."""
        told: Mapping[str, Any] = {"message": message.message, "metadata": message.metadata}
        secrets: list[Finding] = []
        try:
            if not self.raw:
                told = _masked(told, self._sanitizer, secrets)
            draft = self._draft(message, told, len(secrets), format_name, file)
        except LoomError as error:  # this message alone is too large, nested too deeply, or not valid text
            self.problem(ImportProblem(file.name, message.position, str(error)))
            return
        if draft.id in self._batch:
            self.flush()
        self._batch[draft.id] = _Waiting(draft, bool(secrets), file.name, message.position)
        self._chars += len(draft.content)
        if len(self._batch) >= _BATCH_MESSAGES or self._chars >= BATCH_CHARS:
            self.flush()

    def problem(self, problem: ImportProblem) -> None:
        """Count a part that cannot be imported."""
        self.skipped += 1
        self.complete = self.complete and not problem.is_cut
        if len(self.problems) < _MOST_TOLD:
            self.problems.append(problem)

    def flush(self) -> None:
        """Write the current batch in one transaction."""
        batch, self._batch, self._chars = [*self._batch.values()], {}, 0
        if self.dry_run:
            self._settle(batch, [_standing(self.memory.store, one.draft) for one in batch])
        elif batch or self.within is not None:
            with self.memory.store.transaction() as transaction:
                there = [_standing(transaction, one.draft) for one in batch]
                self._append(
                    transaction, [one.draft for one, known in zip(batch, there, strict=True) if known is None]
                )
                if self.within is not None:
                    self.within(transaction)
            self._settle(batch, there)
        self.done += len(batch)
        if self.progress is not None and batch:
            self.progress(self.done)

    def result(self, formats: dict[str, int], passed_over: int) -> HistoryResult:
        return HistoryResult(
            formats,
            passed_over,
            self.records,
            self.present,
            self.outside,
            self.skipped,
            self.masked,
            self.complete,
            self.dry_run,
            problems=tuple(self.problems),
        )

    def _draft(
        self, message: HistoryMessage, told: Mapping[str, Any], secrets: int, format_name: str, file: SourceFile
    ) -> Draft:
        metadata = {**told["metadata"], "imported": format_name}
        if message.created_at is None:
            metadata["undated"] = True
        if secrets:
            metadata["masked"] = secrets
        attributes = Attributes(
            session_id=message.session_id,
            created_at=message.created_at or file.modified,
            metadata=metadata,
            trust=message.trust,
            kind=message.kind,
        )
        return self.memory.drafter.message(told["message"], message.id, attributes)

    def _append(self, transaction: Transaction, drafts: Sequence[Draft]) -> None:
        if not drafts:
            return
        written = transaction.append(drafts)
        own = [one.seq for one, draft in zip(written, drafts, strict=True) if may_instruct(draft)]
        if own:
            transaction.enter(own, UNCONFIRMED, self.memory.node_id, "imported", [0] * len(own))
        self.memory.tiers.make_room(transaction)

    def _settle(self, batch: Sequence[_Waiting], there: Sequence[bool | None]) -> None:
        for one, known in zip(batch, there, strict=True):
            if known is None:
                self.records += 1
                self.masked += one.masked
            elif known:
                self.present += 1
            else:
                reason = "its id exists with another text: it was imported with other options, or changed since"
                self.problem(ImportProblem(one.file, one.position, reason))


def _standing(reads: Reads, draft: Draft) -> bool | None:
    """True if a message is stored, as any version of its id; False if its id has another text; None if it is new."""
    newest = reads.get(draft.id)
    if newest is None:
        return None
    versions: Iterator[Record] = iter([newest] if newest.version == 1 else reads.history(draft.id))
    return any(one.content == draft.content and one.data == draft.data for one in versions)
