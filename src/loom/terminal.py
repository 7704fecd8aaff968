"""Make text safe for a terminal: control and invisible characters are shown as visible escapes.

Stored text, ids and paths are not trusted. Escape sequences in them could clear the screen, forge output or type into
the shell; bidi controls could display one text as another.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast

__all__ = ["guarded_output", "visible", "visible_json"]

# Controls (C0, DEL, C1), bidi controls, separators that end a line, invisible operators, tags, and lone surrogates,
# which no stream can print.
_MARKED: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: object) -> str:
    """Return `text` in one line, with every control, bidi and invisible character escaped, such as `\\x1b`."""
    return _MARKED.sub(_mark, str(text))


def _mark(match: re.Match[str]) -> str:
    character = match.group()
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character) or character.encode(
        "unicode_escape", "backslashreplace"
    ).decode("ascii")


def visible_json(value: object, indent: int | None = None) -> str:
    """Return JSON that is safe for a terminal: readable in any script, with control characters as JSON escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _MARKED.sub(
        lambda match: match.group() if match.group() == "\n" else json.dumps(match.group())[1:-1], text
    )


class _Guarded:
    """A text stream that escapes control characters but line ends and tabs, and characters outside its encoding."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        shown = _MARKED.sub(lambda match: match.group() if match.group() in "\n\t" else _mark(match), text)
        encoding = getattr(self.unguarded, "encoding", None) or "utf-8"
        if not shown.isascii():
            shown = shown.encode(encoding, "backslashreplace").decode(encoding)
        self.unguarded.write(shown)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


@contextmanager
def guarded_output() -> Iterator[None]:
    """Escape control characters in standard output and standard error while the block runs."""
    output, errors = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast(TextIO, _Guarded(output)), cast(TextIO, _Guarded(errors))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = output, errors
