"""Split a text into statements. Handles code, tracebacks, logs, lists, quotations and abbreviations.

The statements come in order and contain all of the text but white space and list marks. Linear in the length of the
text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loom.text.date_phrases import MONTH_NAMES, MONTHS
from loom.text.scripts import HAN
from loom.text.statement_kinds import StatementKind
from loom.text.statements import Statement, kind_of, trimmed

__all__ = ["statements"]

# A longer "sentence" is cut, which bounds the length of a statement for all later steps.
_LONGEST = 600
_MONTH_ABBREVIATIONS = "|".join(name for name in MONTHS if len(name) <= 4 and name not in MONTH_NAMES)
# A run of punctuation matches at its first character only, so that a megabyte of it is read once.
_SENTENCE_END = re.compile(
    "(?<![.!?])[.!?]++[\"'”’)\\]*_]{0,4}+(?=\\s|$)"
    '|(?<![。！？…；～])[。！？…；～]++[”’」』）)"]{0,4}+'
    f'|(?<=[.!?~])["”’)]?(?=[{HAN}])'
    "|;(?=\\s)"
    "|\\n(?![ \\t]*[a-z(])"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|dr|mr|mrs|ms|prof|st|fig|eq|dept|inc|ltd|jr|sr|vol|al|resp|"
    rf"{_MONTH_ABBREVIATIONS})|\b(?-i:[A-Z]))\.$",
    re.IGNORECASE,
)
_LIST_MARK = re.compile(
    r"[ \t]{0,12}(?:[-*+•·]|\d{1,3}[.)、]|[（(]\d{1,2}[)）]|#{1,6}|\[[ xX]\])[ \t]+(?:\[[ xX]\][ \t]+)?"
)
_FENCE = re.compile(r"[ \t]{0,8}(?:```|~~~)[^`\n]{0,80}$", re.MULTILINE)
_QUOTE_LINE = re.compile(r"[ \t]{0,4}>")
_LOG_LINE = re.compile(
    r"[ \t]{0,8}(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[?\d\d:\d\d:\d\d\b|\[?(?:INFO|DEBUG|WARN|WARNING|ERROR|FATAL|"
    r"CRITICAL|TRACE)\b"
    r"|(?:PASS|FAIL|FAILED|PASSED)\s+[\w./:-]|ok(?: \d+ [-#]|\s+[\w.-]+/\S)|E\s{2,}\S"
    r"|\$ \S|>>> |(?:\+\+\+|---|@@) |[+-]{1} ?\w+\(|={4,}|-{4,}"
    r"|Traceback \(|\s+File \"|\s+at [\w.$]+\(|[\w./-]+:\d+:(?:\d+:)? |\w+(?:\.\w+)*(?:Error|Exception)\b:"
    r"|\d+ (?:passed|failed)\b|npm ERR!|make(?:\[\d+\])?: |error(?:\[\w+\])?: |warning: |\{\"|[.FEsx]{3,}$)"
)
_TRACEBACK = re.compile(r"[ \t]{0,8}Traceback \(most recent call last\)")
_ERROR_LINE = re.compile(
    r"\b(?:ERROR|FATAL|CRITICAL|FAILED|FAIL|panic|fatal|Exception)\b|\b\w*(?:Error|Exception)\b(?=[:(]|$)|"
    r"\berror(?:\[\w+\])?:|npm ERR!|"
    r"\b(?:Segmentation fault|Killed|No space left|out of memory|Permission denied|command not found)\b"
)
_TEST_LINE = re.compile(
    r"\b\d+ (?:passed|failed|tests?|passing|failing|skipped|errors?)\b|\bPASS(?:ED)?\b|\bok\b.{0,40}\b\d|"
    r"coverage:? \d|Tests?:\s+\d"
    r"|\b\d+/\d+ (?:tests|passed)|测试通过|个用例"
)
_CHANGE_LINE = re.compile(
    r"^\s*(?:(?:create|delete) mode \d+ |(?:Created|Wrote|Updated|Deleted|Modified|Renamed)\b|\d+ files? changed)"
)


def statements(text: str) -> list[Statement]:
    """Return the statements of a text in order: all of the text but white space and list marks."""
    return [*_found(text)]


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each line in a part of a text."""
    while start < end:
        line_end = text.find("\n", start, end)
        line_end = end if line_end < 0 else line_end
        yield start, line_end
        start = line_end + 1


def _found(text: str) -> Iterator[Statement]:
    prose_start = -1
    prose_end = 0
    fence_start = -1
    in_traceback = False
    for position, line_end in _lines(text, 0, len(text)):
        if fence_start >= 0:
            if _FENCE.match(text, position):
                yield from _code(text, fence_start, position)
                fence_start = -1
            continue
        if in_traceback:
            # Frames are indented; the first line that is not indented is the error.
            if position < line_end and not text[position].isspace():
                yield Statement(text[position:line_end], position, line_end, StatementKind.ERROR, machine=True)
                in_traceback = False
            continue
        blank = not text[position:line_end].strip() if line_end - position < 200 else False
        mark = None if blank else _LIST_MARK.match(text, position, line_end)
        machine = None if blank or mark else _LOG_LINE.match(text, position, line_end)
        fence = None if blank else _FENCE.match(text, position, line_end)
        quote = None if blank or machine else _QUOTE_LINE.match(text, position, line_end)
        plain = not (blank or mark or machine or fence or quote)
        if not plain and prose_start >= 0:
            yield from _prose(text, prose_start, prose_end)
            prose_start = -1
        if fence:
            fence_start = line_end + 1
        elif machine and _TRACEBACK.match(text, position, line_end):
            in_traceback = True
        elif machine:
            pieces = (
                trimmed(text, cut, min(line_end, cut + _LONGEST)) for cut in range(position, line_end, _LONGEST)
            )
            yield from (Statement(*piece, _machine_kind(piece[0]), machine=True) for piece in pieces if piece[0])
        elif marked := mark or quote:
            yield from _prose(text, marked.end(), line_end, quoted=quote is not None)
        elif plain and prose_start < 0:
            prose_start = position
        prose_end = line_end
    if fence_start >= 0:
        yield from _code(text, fence_start, len(text))
    if prose_start >= 0:
        yield from _prose(text, prose_start, prose_end)


def _machine_kind(line: str) -> StatementKind:
    if _TEST_LINE.search(line) and not (line.startswith("FAILED ") and "::" in line):
        return StatementKind.TEST
    if _ERROR_LINE.search(line):
        return StatementKind.ERROR
    if _CHANGE_LINE.match(line):
        return StatementKind.CHANGE
    return StatementKind.CODE


def _code(text: str, start: int, end: int) -> Iterator[Statement]:
    """Yield each line of a block that is a report, and the lines between them as code."""
    code_start = -1
    for position, line_end in _lines(text, start, end):
        line, begin, stop = trimmed(text, position, min(line_end, position + _LONGEST))
        kind = _machine_kind(line) if line else StatementKind.CODE
        # In source code, words such as Error are names; only lines in the form of a report count.
        if kind is not StatementKind.CODE and not _SOURCE_LINE.match(line):
            if code_start >= 0:
                yield from _code_block(text, code_start, position)
                code_start = -1
            yield Statement(line, begin, stop, kind, machine=True)
        elif line and code_start < 0:
            code_start = position
    if code_start >= 0:
        yield from _code_block(text, code_start, end)


_SOURCE_LINE = re.compile(
    r"(?:raise|except|throw|catch|import|from|def|class|return|if|else|for|while|try|const|let|var|public|private|"
    r"function|#|//|/\*|\*|assert|with|async|await|print|log(?:ger|ging)?\.)\b|[\w.]+\s*=(?!=)|[}\])]"
)


def _code_block(text: str, start: int, end: int) -> Iterator[Statement]:
    yield Statement(*trimmed(text, start, end), StatementKind.CODE, machine=True)


def _prose(text: str, start: int, end: int, quoted: bool = False) -> Iterator[Statement]:
    begin = start
    for match in _SENTENCE_END.finditer(text, start, end):
        stop = match.end()
        if match.group()[:1] == "." and stop < end:
            before = text[max(begin, match.start() - 7) : match.start() + 1]
            if len(match.group()) == 1 and _ABBREVIATION.search(before):
                continue
        yield from _sentence(text, begin, stop, quoted)
        begin = stop
    yield from _sentence(text, begin, end, quoted)


def _sentence(text: str, start: int, end: int, quoted: bool) -> Iterator[Statement]:
    while end - start > _LONGEST:
        cut = max(text.rfind(mark, start + _LONGEST // 2, start + _LONGEST) for mark in (" ", "，", ","))
        cut = cut + 1 if cut > 0 else start + _LONGEST
        yield from _sentence(text, start, cut, quoted)
        start = cut
    said, begin, stop = trimmed(text, start, end)
    if said:
        quoted = quoted or (said[0] in "\"“「'" and said[-1] in "\"”」'" and len(said) > 2)
        yield Statement(said, begin, stop, kind_of(said), quoted=quoted)
