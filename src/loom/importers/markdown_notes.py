"""Folders of Markdown: each section under a heading is a memory, with the headings above it.

A file may begin with front matter, whose title, tags and date are kept. Files of any size are read line by line. This
module imports notes of other programs; `loom.notebook` reads the files of notebooks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO, Final

from loom.importers.json_reader import lines_of
from loom.importers.messages import HistoryMessage, ImportProblem, Read, SourceFile, digest_id, moment_of

__all__ = ["NAME", "read"]

NAME: Final = "markdown"

_HEADING = re.compile(r"(#{1,6})[ \t]+(.{1,200}?)[ \t#]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_PAIR = re.compile(r"(title|date|created|created_at|tags)[ \t]*:[ \t]*(.{1,300}?)[ \t]*$", re.IGNORECASE)
_LARGEST_SECTION = 64 * 1024
_LONGEST_FRONT_MATTER = 200


@dataclass(slots=True)
class _Page:
    """The state of reading a file: the headings above the current line, and the lines of its section so far."""

    headings: list[tuple[int, str]] = field(default_factory=list)
    section: list[str] = field(default_factory=list)
    size: int = 0
    begins: int = 1
    fence: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None


def read(file: SourceFile, opened: BinaryIO) -> Read:
    page = _Page()
    front = False
    for line in lines_of(opened):
        position = f"line {line.number:,}"
        try:
            text = (line.text or b"").decode("utf-8-sig" if line.number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            yield ImportProblem(file.name, position, f"it is not UTF-8 (byte {error.start:,} of the line)")
            continue
        if line.text is None:
            yield ImportProblem(file.name, position, "it is too long")
            continue
        if text == "---" and (line.number == 1 or front):
            front = line.number == 1
            page.begins = line.number + 1
            continue
        if front and line.number <= _LONGEST_FRONT_MATTER:
            _note(page, text)
            continue
        heading = None if _in_fence(page, text) else _HEADING.match(text)
        if heading or page.size > _LARGEST_SECTION:
            yield from _section(file, page)
            page.begins = line.number
        if heading:
            level = len(heading[1])
            page.headings = [one for one in page.headings if one[0] < level] + [(level, heading[2])]
        else:
            page.section.append(text)
            page.size += len(text)
    yield from _section(file, page)


def _in_fence(page: _Page, line: str) -> bool:
    """Return whether a line belongs to a fenced block of code, including its fences."""
    mark = _FENCE.match(line)
    if page.fence is None:
        page.fence = mark[1] if mark else None
        return mark is not None
    if mark and mark[1].startswith(page.fence) and not line.strip().strip("`~"):
        page.fence = None
    return True


def _note(page: _Page, line: str) -> None:
    pair = _PAIR.match(line)
    if pair is None:
        return
    name, value = pair[1].lower(), pair[2].strip("\"'")
    if name == "title":
        page.metadata["title"] = value
    elif name == "tags":
        page.metadata["tags"] = [one.strip(" \"'#") for one in value.strip("[]").split(",") if one.strip(" \"'#")]
    else:
        page.created_at = moment_of(value) or page.created_at


def _section(file: SourceFile, page: _Page) -> Iterator[HistoryMessage]:
    """Yield the section that ends here, unless it is empty."""
    text = "\n".join(page.section).strip()
    page.section, page.size = [], 0
    if not text:
        return
    path = " / ".join(name for _, name in page.headings)
    whole = f"{path}\n\n{text}" if path else text
    yield HistoryMessage(
        # The id depends on the text: an edited section is a new memory, a section that only moved is the same one.
        digest_id(NAME, file.name, path, text),
        {"role": None, "content": whole},
        f"line {page.begins:,}",
        created_at=page.created_at,
        metadata={"file": file.name, **page.metadata},
        trust="unknown",
        kind="context",
    )
