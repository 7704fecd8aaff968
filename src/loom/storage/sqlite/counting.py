"""Counting later: what a record measures in tokens before anybody has counted it.

A write need not count: of a count that is `AtMost` some number, the row's `tokens` has `~most`, a negative number.
The worker counts many in a row afterwards and stores the counts (`loom.storage.sqlite.maintenance`). A reader that
comes before that reads `TOKENS`, which counts at once; so every reader sees the same count.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping

from loom.storage.contract import AtMost
from loom.storage.sqlite.archive import CONTENT

__all__ = ["PROGRESS", "TOKENS", "Count", "Counts", "as_stored"]

Count = Callable[[str], int]
"""Counts the tokens of a text."""

TOKENS = (
    "CASE WHEN r.tokens < 0 "
    f"THEN tokens_of(r.seq, r.tokens, CAST(r.counter AS BLOB), CAST({CONTENT} AS BLOB)) ELSE r.tokens END"
)
"""SQL for the tokens of `records r`, counted or not. Whoever wants the number reads this and not the column."""

PROGRESS = "tokens"
"""Under which name the database notes up to which record all are counted."""

# The worker is at most about 10 s late, so there are rarely more than this.
_REMEMBERED = 8_192


def as_stored(tokens: int) -> int:
    """A number of tokens as a row has it: negative while it is still to be counted."""
    return ~tokens if isinstance(tokens, AtMost) else tokens


class Counts:
    """Counts what is read before the worker has counted it, for all connections of one process.

    It remembers numbers by the numbers of records, and no text: a window is read with every prompt. One of 48 long
    messages took 3.3 ms with counting them, and takes 0.1 ms after that.
    """

    def __init__(self) -> None:
        self._counters: dict[bytes, Count] = {}
        self._known: dict[int, int] = {}

    def use(self, counters: Mapping[str, Count]) -> None:
        """Count with these, by the names that records have them under."""
        self._counters |= {name.encode(): count for name, count in counters.items()}

    @property
    def can_count(self) -> bool:
        """Whether this process has a counter at all."""
        return bool(self._counters)

    def serve(self, connection: sqlite3.Connection) -> None:
        """Let SQL on this connection say `tokens_of(...)`, as in `TOKENS`."""
        connection.create_function("tokens_of", 4, self._tokens_of)

    def forget(self) -> None:
        """Hold no number any longer: what was rolled back gives its numbers to other records."""
        self._known = {}

    def of(self, seq: int, counter: bytes, content: str) -> int | None:
        """What the text of a record that waits for its count measures; None where this process cannot count it."""
        known = self._known.get(seq)
        if known is not None:
            return known
        count = self._counters.get(counter)
        if count is None:
            return None
        if len(self._known) >= _REMEMBERED:
            self._known = {}
        self._known[seq] = tokens = count(content)
        return tokens

    def count(self, counter: str, content: str) -> int | None:
        """What a text measures by the counter of this name; None where this process has none of it."""
        count = self._counters.get(counter.encode())
        return None if count is None else count(content)

    def _tokens_of(self, seq: int, waiting: int, counter: bytes, content: bytes | None) -> int:
        known = self._known.get(seq)
        if known is not None:
            return known
        if not self._counters:
            raise LookupError("no counter")  # its name is lost in SQLite; see `loom.storage.sqlite.engine.translate`
        try:
            tokens = None if content is None else self.of(seq, counter, content.decode())
        except Exception:  # a counter may raise anything; the worker sets the record aside and names it
            tokens = None
        # A damaged row has no true count. Reading it says what is wrong; until then it is held to be large.
        return ~waiting if tokens is None else tokens
