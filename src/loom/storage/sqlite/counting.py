"""Deferred counting: the tokens of a record that was written without a count.

A writer need not count. If it gives `AtMost(most)` as the count, the row's `tokens` holds `~most`, a negative number.
The worker later counts many records in a row and stores the counts (`loom.storage.sqlite.maintenance`). Readers use
`TOKENS`, which counts such a row at once, so every reader sees the same count.
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
"""SQL for the tokens of `records r`, counted or not. Queries must use this instead of the column."""

PROGRESS = "tokens"
"""The name of the watermark up to which all records are counted."""

# The worker is at most about 10 s late, so there are rarely more than this.
_REMEMBERED = 8_192


def as_stored(tokens: int) -> int:
    """A token count as a row stores it: negative until the text is counted."""
    return ~tokens if isinstance(tokens, AtMost) else tokens


class Counts:
    """Counts records that are read before the worker has counted them, for all connections of one process.

    It caches counts by sequence number, without text, because every prompt reads the window. A window of 48 long
    messages took 3.3 ms with counting, and takes 0.1 ms with cached counts.
    """

    def __init__(self) -> None:
        self._counters: dict[bytes, Count] = {}
        self._known: dict[int, int] = {}

    def use(self, counters: Mapping[str, Count]) -> None:
        """Set the counters, by the names that records use for them."""
        self._counters |= {name.encode(): count for name, count in counters.items()}

    @property
    def can_count(self) -> bool:
        return bool(self._counters)

    def serve(self, connection: sqlite3.Connection) -> None:
        """Define the SQL function `tokens_of(...)`, which `TOKENS` uses, on a connection."""
        connection.create_function("tokens_of", 4, self._tokens_of)

    def forget(self) -> None:
        """Empty the cache. After a rollback other records get the same sequence numbers."""
        self._known = {}

    def of(self, seq: int, counter: bytes, content: str) -> int | None:
        """The tokens of an uncounted record; None if this process cannot count them."""
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
        """The tokens of a text by the counter of this name; None if this process has no such counter."""
        count = self._counters.get(counter.encode())
        return None if count is None else count(content)

    def _tokens_of(self, seq: int, waiting: int, counter: bytes, content: bytes | None) -> int:
        known = self._known.get(seq)
        if known is not None:
            return known
        if not self._counters:
            raise LookupError("no counter")  # SQLite drops the name; see `loom.storage.sqlite.engine.translate`
        try:
            tokens = None if content is None else self.of(seq, counter, content.decode())
        except Exception:  # a counter may raise anything; the worker sets the record aside and names it
            tokens = None
        # A damaged row has no true count: assume the largest. Reading the row reports the damage.
        return ~waiting if tokens is None else tokens
