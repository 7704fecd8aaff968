"""Print answers for people: lines of text, with colours and fitted columns on a terminal.

Stored text, ids and paths pass through `visible`, so they cannot control a terminal or forge a line.
"""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import singledispatch
from typing import Any, Final, TextIO

from loom.cli.programs import Ended
from loom.operations import answers as said
from loom.terminal import visible

__all__ = ["Page", "Part", "print_answer", "uses_colours"]

_CODES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_STATES: Final = {"ok": "green", "note": "yellow", "problem": "red"}

Part = str | tuple[object, str]
"""Our own text, or a pair of any other text and its style (empty for none)."""


class Page:
    """Collects lines. A part that is a tuple is made visible and, on a terminal, styled."""

    def __init__(self, colours: bool, width: int | None) -> None:
        self.colours = colours
        self.width = width
        self.lines: list[str] = []

    def line(self, *parts: Part) -> None:
        self.lines.append("".join(self._styled(part) for part in parts))

    def each(self, label: str, style: str, values: Iterable[object]) -> None:
        """Add a line for each value, with a label in front."""
        for value in values:
            self.line((label, style), (value, ""))

    def text(self, text: str, indent: str = "") -> None:
        """Add a text of several lines, each made visible."""
        self.lines += [f"{indent}{visible(line)}" for line in text.splitlines() or [""]]

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[int] = ()) -> None:
        """Add rows in columns. On a terminal the last column is cut at the width of the terminal."""
        cells = [[visible(cell) for cell in row] for row in rows]
        widths = [max(map(_width, column)) for column in zip(headings, *cells, strict=True)]
        for place, row in enumerate([list(headings), *cells]):
            padded = [_padded(cell, widths[at], at in right) for at, cell in enumerate(row)]
            shown = "  ".join(padded).rstrip()
            if self.width is not None:
                shown = _cut(shown, self.width)
            self.lines.append(self._styled((shown, "dim")) if place == 0 else shown)

    def _styled(self, part: Part) -> str:
        if isinstance(part, str):
            return part
        text, style = part
        shown = visible(text)
        return f"\x1b[{_CODES[style]}m{shown}\x1b[0m" if self.colours and style else shown


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )


def _padded(text: str, width: int, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    while text and _width(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


def uses_colours(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours."""
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_answer(answer: said.Answer, stream: TextIO) -> None:
    """Print an answer for people."""
    raw: TextIO = getattr(stream, "unguarded", stream)
    colours = uses_colours(raw)
    page = Page(colours, shutil.get_terminal_size().columns if raw.isatty() else None)
    _print_whole(answer, page)
    if not page.lines:
        return
    text = "\n".join(page.lines) + "\n"
    if colours:  # the lines are already visible; the guard would escape the colours
        encoding = getattr(raw, "encoding", None) or "utf-8"
        raw.write(text.encode(encoding, "backslashreplace").decode(encoding))
    else:
        stream.write(text)


_NOTHING: Final[Mapping[type[said.Answer], str]] = {
    said.Recalled: "nothing is known about that",
    said.Listing: "no memories",
    said.Facts: "no facts",
    said.Summaries: "no summaries",
    said.Instructions: "no instructions",
}
"""The output for an answer without rows."""


def _print_whole(answer: said.Answer, page: Page) -> None:
    if type(answer) in _NOTHING and not getattr(answer, str(answer.rows)):
        page.line(_NOTHING[type(answer)])
    else:
        _print(answer, page)


@singledispatch
def _print(answer: Any, page: Page) -> None:
    """Print the rows of an answer one by one, or its fields."""
    if answer.rows is not None:
        for row in getattr(answer, answer.rows):
            _print(row, page)
    else:
        for name, value in answer.to_json().items():
            page.line((name, "dim"), ": ", (value, ""))


@_print.register
def _(answer: Ended, page: Page) -> None:
    """Print nothing: the program has printed its output."""


def _day(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"


# --- memories ------------------------------------------------------------------------------------------------


@_print.register
def _(answer: said.Remembered, page: Page) -> None:
    if len(answer.memories) > 10:
        tokens = sum(one.tokens for one in answer.memories)
        page.line(("remembered ", "green"), f"{len(answer.memories):,} memories, {tokens:,} tokens")
    else:
        for one in answer.memories:
            _print(one, page)


@_print.register
def _(answer: said.Kept, page: Page) -> None:
    state = "was there already" if not answer.created else f"version {answer.version}" if answer.version > 1 else ""
    told = ", ".join(part for part in (answer.tier.upper(), f"{answer.tokens:,} tokens", state, answer.note) if part)
    page.line((answer.id, "cyan"), "  ", (told, ""))


@_print.register
def _(hit: said.Found, page: Page) -> None:
    page.line((f"{hit.score:5.2f}  ", "green"), (hit.content, ""))
    by = ", ".join(str(part) for part in (hit.name or hit.role, hit.session_id, _day(hit.created_at)) if part)
    page.line("       ", (hit.id, "cyan"), ("  " + by, "dim"), *_caution(hit.caution))
    page.line("       ", (hit.why, "dim"))


def _caution(caution: str | None) -> list[Part]:
    return [("  " + caution, "yellow")] if caution else []


@_print.register
def _(answer: said.Prompt, page: Page) -> None:
    if answer.explanation is not None:
        page.text(answer.explanation)
        page.line()
    for message in answer.messages:
        page.line((f"[{message.get('role')}]", "cyan"))
        parts = (message.get("content"), message.get("tool_calls"))
        page.text("\n".join(str(part) for part in parts if part))
    page.line((f"{answer.tokens:,} of {answer.budget:,} tokens", "dim"))


@_print.register
def _(answer: said.MemoryItem, page: Page) -> None:
    page.text(answer.content)
    by = ", ".join(str(part) for part in (answer.name or answer.role, answer.session_id, answer.kind) if part)
    ended = f" until {_day(answer.superseded_at)}" if answer.superseded_at else ""
    told = f"  {by}, {_day(answer.created_at)}{ended}, version {answer.version}, {answer.tokens:,} tokens, "
    page.line((answer.id, "cyan"), (f"{told}importance {answer.importance:g}", "dim"), *_caution(answer.caution))
    if answer.metadata:
        page.line(("metadata  ", "dim"), (dict(answer.metadata), ""))


def _memory_table(memories: Iterable[said.MemoryItem], page: Page) -> None:
    rows = [
        (one.id, _day(one.created_at), one.name or one.role or "", one.session_id or "", one.content)
        for one in memories
    ]
    page.table(("id", "said", "by", "session", "text"), rows)


@_print.register
def _(answer: said.Listing, page: Page) -> None:
    _memory_table(answer.memories, page)
    if answer.next is not None:
        page.line((f"more: --after {answer.next}", "dim"))


@_print.register
def _(answer: said.Matrix, page: Page) -> None:
    rows = [(one.subject, one.layer, f"{one.states:,}", f"{one.events:,}") for one in answer.cells]
    page.table(("subject", "layer", "states", "events"), rows, right=(2, 3))
    if answer.memories is not None:
        page.line()
        _print_whole(said.Listing(answer.memories, answer.next), page)


@_print.register
def _(answer: said.Forgotten, page: Page) -> None:
    if not answer.records:
        page.line("nothing matches")
    elif answer.preview:
        _memory_table(answer.memories or (), page)
        more = len(answer.ids) - len(answer.memories or ())
        rest = f", the first {len(answer.memories or ())} shown" if more > 0 else ""
        page.line((f"{_records(answer.records)} of {len(answer.ids):,} ids would be forgotten{rest}", "yellow"))
    else:
        derived = f", {answer.derived:,} of them derived" if answer.derived else ""
        page.line(("forgotten  ", "red"), f"{_records(answer.records)}{derived}")
        page.each("copies remain  ", "yellow", answer.remains)


# --- knowledge and places ------------------------------------------------------------------------------------


@_print.register
def _(fact: said.FactItem, page: Page) -> None:
    ended = f", until {_day(fact.superseded_at)}" if fact.superseded_at else ""
    page.line((fact.content, "bold"))
    told = f"  {fact.fact_type}, {fact.confidence:.0%} sure, since {_day(fact.created_at)}{ended}"
    page.line("  ", (fact.id, "cyan"), (told, "dim"))
    if fact.sources:
        page.line(("  from ", "dim"), (", ".join(fact.sources), ""))


@_print.register
def _(one: said.SummaryItem, page: Page) -> None:
    told = f"{len(one.sources)} records, {one.tokens:,} of {one.original_tokens:,} tokens"
    page.line(
        (one.id, "cyan"),
        (f"  session {one.session_id or '-'}, {told}, fidelity {one.fidelity:.2f}, {one.state}", "dim"),
    )
    page.text(one.text, "  ")


@_print.register
def _(answer: said.InstructionItem, page: Page) -> None:
    page.line((answer.text, "bold"))
    ended = f", until {_day(answer.superseded_at)}" if answer.superseded_at else ""
    where = f", session {answer.session_id}" if answer.scope == "session" else ""
    page.line("  ", (answer.id, "cyan"), (f"  {answer.kind}{where}, since {_day(answer.created_at)}{ended}", "dim"))


@_print.register
def _(answer: said.Undone, page: Page) -> None:
    restored = f"; {_records(len(answer.restored))} back in place" if answer.restored else ""
    page.line((answer.id, "cyan"), f" is withdrawn{restored}")


@_print.register
def _(answer: said.Compacted, page: Page) -> None:
    page.line(
        f"{len(answer.summaries):,} summaries replaced {_records(answer.replaced)}, "
        f"{len(answer.rejected):,} were rejected; {answer.tokens_before:,} -> {answer.tokens_after:,} tokens"
    )


@_print.register
def _(answer: said.Moved, page: Page) -> None:
    if answer.refused is not None:
        page.line((answer.id, "cyan"), " stays where it is: ", (answer.refused, ""))
    else:
        page.line(
            (answer.id, "cyan"), f" is {f'in {answer.tier.upper()}' if answer.tier else 'in the log alone'} now"
        )


@_print.register
def _(answer: said.Pinned, page: Page) -> None:
    page.line((answer.id, "cyan"), " is pinned" if answer.pinned else " is no longer pinned")


def _tier_table(tiers: Iterable[said.TierItem], page: Page) -> None:
    rows = [(one.tier.upper(), f"{one.items:,}", f"{one.tokens:,}", f"{one.budget:,}") for one in tiers]
    page.table(("tier", "records", "tokens", "budget"), rows, right=(1, 2, 3))


@_print.register
def _(answer: said.Tiers, page: Page) -> None:
    page.line("node ", (answer.node, "cyan"), ", profile ", (answer.profile, ""))
    _tier_table(answer.tiers, page)
    rows = [(name, one["value"], one["level"]) for name, one in answer.measures.items() if one["value"] is not None]
    if rows:
        page.line()
        page.table(("measure", "value", "level"), rows)


@_print.register
def _(answer: said.Flushed, page: Page) -> None:
    if answer.complete:
        page.line(("done  ", "green"), "everything is embedded, indexed and derived")
    page.each("waiting  ", "yellow", (f"{count:,} of {kind}" for kind, count in answer.waiting.items()))
    page.each("given up  ", "red", (f"{count:,} of {kind}" for kind, count in answer.failed.items()))
    page.each("failed  ", "red", answer.errors)


# --- notebooks -----------------------------------------------------------------------------------------------


@_print.register
def _(answer: said.Synced, page: Page) -> None:
    if not answer.to_json() or not any(answer.to_json().values()):
        page.line("the files and the memory agree")
    for name, style in (
        ("read", "green"),
        ("written", "green"),
        ("forgotten", "red"),
        ("conflicts", "yellow"),
        ("missing", "yellow"),
        ("removed", "yellow"),
        ("problems", "red"),
    ):
        page.each(f"{name:<10}", style, getattr(answer, name))


@_print.register
def _(answer: said.NotebookFiles, page: Page) -> None:
    page.line("agent ", (answer.agent, "cyan"), ", knowledge in use: ", (answer.variant, "cyan"))
    rows = [(one.path, str(one.version), one.trust, f"{one.tokens:,}", _day(one.created_at)) for one in answer.files]
    page.table(("page", "version", "trust", "tokens", "since"), rows, right=(1, 3))


@_print.register
def _(answer: said.Difference, page: Page) -> None:
    page.text(answer.diff or "nothing differs")


@_print.register
def _(answer: said.Trials, page: Page) -> None:
    rows = [
        (
            f"{one.name}{' (in use)' if one.in_use else ''}",
            str(one.version or "all"),
            f"{one.sessions:,}",
            f"{one.succeeded:,}",
            f"{one.failed:,}",
            "-" if one.success_rate is None else f"{one.success_rate:.0%}",
            f"{one.rounds:.1f}",
        )
        for one in answer.trials
    ]
    headings = ("knowledge", "version", "sessions", "succeeded", "failed", "success", "rounds")
    page.table(headings, rows, right=(1, 2, 3, 4, 5, 6))


@_print.register
def _(answer: said.PackageMerged, page: Page) -> None:
    page.each("merged    ", "green", answer.merged)
    page.each("conflict  ", "yellow", answer.conflicts)
    for pair in answer.disagreements:
        page.line(("own       ", "yellow"), (pair.own, ""))
        page.line(("package   ", "yellow"), (pair.package, ""))


# --- upkeep --------------------------------------------------------------------------------------------------


@_print.register
def _(answer: said.Stats, page: Page) -> None:
    for name, value in (
        ("store", answer.store),
        ("namespace", answer.namespace),
        ("node", answer.node),
        ("profile", answer.profile),
        ("embedder", answer.embedder or "none: recall by words, names and time"),
    ):
        page.line((f"{name:<10}", "dim"), (value, ""))
    page.line()
    _tier_table(answer.tiers, page)
    page.line()
    counts = {**answer.counts, "backlog": answer.backlog}
    page.table(("count", "value"), [(name, f"{value:,}") for name, value in counts.items()], right=(1,))
    page.each("set aside  ", "yellow", answer.set_aside)


@_print.register
def _(answer: said.Namespaces, page: Page) -> None:
    page.each("", "", answer.namespaces)


@_print.register
def _(answer: said.Tenants, page: Page) -> None:
    page.table(("role", "namespace"), [(one.role, one.namespace) for one in answer.tenants])


@_print.register
def _(answer: said.Checked, page: Page) -> None:
    for one in answer.namespaces:
        state: Part = ("ok", "green") if one.ok else ("damaged", "red")
        page.line((one.namespace, "bold"), f": {_records(one.records)}, ", state)
        for label, lines in (("repaired", one.repaired), ("problem", one.problems), ("set aside", one.set_aside)):
            for line in lines:
                page.line(f"  {label}: ", (line, ""))


@_print.register
def _(answer: said.Archived, page: Page) -> None:
    for one in answer.namespaces:
        ratio = one.raw_bytes / one.stored_bytes if one.stored_bytes else 1.0
        blocks = f"{one.blocks:,} block{'' if one.blocks == 1 else 's'}"
        page.line(
            (one.namespace, "bold"),
            f": {_records(one.records)} in {blocks}, {one.raw_bytes:,} bytes as {one.stored_bytes:,} ({ratio:.2f}:1)",
        )
    page.line(f"the file shrank by {answer.freed_bytes:,} bytes")


@_print.register
def _(answer: said.SnapshotFile, page: Page) -> None:
    told = f": {_records(answer.records)} of {', '.join(answer.namespaces)}, {answer.size_bytes:,} bytes"
    page.line((answer.path, "bold"), (told, ""))
    page.line(f"  sha256 {answer.sha256}")
    if answer.continues is not None:
        page.line("  continues ", (answer.continues, ""))


@_print.register
def _(answer: said.RestoredFile, page: Page) -> None:
    if answer.into is None:
        page.line((answer.store, "bold"), (f": {_records(answer.records)} of {', '.join(answer.namespaces)}", ""))
    else:
        told = f": {_records(answer.records)} added, {answer.present:,} already present, "
        page.line((answer.store, "bold"), (f", {answer.into}", ""), told, f"{answer.forgotten:,} forgotten since")


@_print.register
def _(answer: said.Migrated, page: Page) -> None:
    page.line(
        (answer.target, "bold"), f": {_records(answer.records)} copied from {answer.source}, compared and equal"
    )
    for one in answer.namespaces:
        page.line(f"  {one.namespace}: {_records(one.records)} added, {one.present:,} already present")


@_print.register
def _(answer: said.BackedUp, page: Page) -> None:
    page.line((answer.path, "bold"), f": {answer.size_bytes:,} bytes")


@_print.register
def _(answer: said.Exported, page: Page) -> None:
    derived = f", {answer.derived:,} of them derived" if answer.derived else ""
    page.line((answer.path, "bold"), f": {_records(answer.records)}{derived}, {answer.size_bytes:,} bytes")


@_print.register
def _(answer: said.Imported, page: Page) -> None:
    files = ", ".join(f"{count:,} x {name}" for name, count in answer.formats.items())
    added = "would be added" if answer.dry_run else "added"
    page.line(f"{_records(answer.records)} {added}, {answer.present:,} already present ({files})")
    if answer.outside:
        page.line(f"{answer.outside:,} left out by --since or --project")
    if answer.masked:
        page.line(f"{answer.masked:,} had keys or other secrets, which were masked")
    if answer.derived:
        page.line(f"{answer.derived:,} derived records are derived again here: `loom flush` waits for this")
    for one in answer.problems:
        page.line((f"{one.file} {one.position}: ".replace(" :", ":"), "yellow"), (one.reason, ""))
    if answer.skipped:
        page.line((f"{answer.skipped:,} parts were skipped", "red"))


@_print.register
def _(answer: said.KeptOfProject, page: Page) -> None:
    page.line((answer.path, "bold"), f": {_records(answer.records)}")
    if answer.forgotten:
        page.line(f"{_records(answer.forgotten)} forgotten")
    for one in answer.sessions:
        page.line((one.id, "cyan"), f"  {one.messages:,} messages, last {one.last:%Y-%m-%d %H:%M}  {one.prompt}")
    if answer.hooks:
        page.line(f"the last hooks ({answer.log}):")
    for run in answer.hooks:
        told = f"{run.kept} kept, {run.quoted} quoted in {run.tokens} tokens"
        page.line(
            f"  {run.at[:19]}  {run.event}  {run.took_ms} ms  ", (run.error or told, "red" if run.error else "")
        )


@_print.register
def _(answer: said.Vacuumed, page: Page) -> None:
    page.line(f"the file shrank by {answer.freed_bytes:,} bytes")


# --- surroundings --------------------------------------------------------------------------------------------


@_print.register
def _(answer: said.SettingsInUse, page: Page) -> None:
    width = max(len(one.name) for one in answer.settings)
    for one in answer.settings:
        page.line((f"{one.name:<{width}}", "cyan"), "  ", (repr(one.value), ""), (f"  ({one.source})", "dim"))
    for note in answer.notes:
        page.line((f"# {note}", "dim"))


@_print.register
def _(answer: said.Trusted, page: Page) -> None:
    if not answer.trusted:
        page.line((answer.folder, "bold"), " is no longer trusted" if answer.changed else " was not trusted")
        return
    empty = "" if answer.settings_file is not None else "; it holds no loom.toml"
    page.line((answer.folder, "bold"), f" is trusted{empty}")
    if answer.settings_file is not None:
        page.text(answer.settings_file, "  ")


@_print.register
def _(answer: said.Diagnosis, page: Page) -> None:
    width = max(len(one.about) for one in answer.findings)
    for one in answer.findings:
        page.line((f"{one.state:<8}", _STATES[one.state]), f"{one.about:<{width}}  ", (one.detail, ""))
        if one.remedy is not None:
            page.line(" " * (width + 10), ("-> ", "dim"), (one.remedy, "bold"))
