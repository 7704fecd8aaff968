"""The terms of a record: its words, those of its metadata, and marks for its speaker, role, dates and names.

`loom.text.words` turns words into terms. A mark is a term that no text can contain, so the text index stores, counts
and forgets it like any word. An index stores `ANALYSIS_VERSION` with its terms and is rebuilt when it differs.
Indexes and scores are not defined here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from loom.index.doc_values import DOC_VALUES_VERSION
from loom.text import entities, words
from loom.text.entities import answer_marks, entity_marks, names_terms, only_asks
from loom.text.time_terms import DATES_VERSION, time_terms
from loom.text.words import terms

__all__ = [
    "ANALYSIS_VERSION",
    "IS_QUESTION",
    "ONLY_ASKS",
    "attached",
    "embedded_text",
    "index_terms",
    "mapping",
    "own_words",
    "role_mark",
    "speaker_mark",
    "speaker_marks",
]

_MARKS_VERSION = 1
# Version numbers only grow, so the sum changes whenever one of them does.
ANALYSIS_VERSION = (
    words.ANALYZER_VERSION + DATES_VERSION + entities.ENTITIES_VERSION + _MARKS_VERSION + DOC_VALUES_VERSION
)

IS_QUESTION = "\x1f?"
"""The mark of a text that ends in a question."""

ONLY_ASKS = "\x1f??"
"""The mark of a text that ends in a question and states next to nothing."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The most characters of a record's metadata that are searched, and the deepest level of nesting.
_MOST_ATTACHED = 2_000
_DEEPEST = 3
# Metadata under these names is not text for people.
_OPAQUE_NAMES = (
    "id",
    "ids",
    "url",
    "urls",
    "uri",
    "hash",
    "checksum",
    "sha1",
    "sha256",
    "md5",
    "etag",
    "uuid",
    "guid",
)
_OPAQUE_VALUES = ("http://", "https://", "data:", "file://")


def index_terms(
    name: str | None, role: str | None, created_at: int, metadata: str | None, content: str, holds_names: int = 0
) -> list[str]:
    """Every term and mark of a record, from its columns: `created_at` in microseconds, `metadata` as JSON.

    A record that holds the names which a model found in another record (`holds_names`) has the terms of these names
    only.
    """
    more = mapping(metadata)
    if holds_names:
        return names_terms(more)
    found = terms(own_words(name, more, content))
    marks = answer_marks(content, found)
    found += time_terms(content, _moment(created_at))
    found += marks
    found += entity_marks(content, more)
    found += speaker_marks(name)
    if role:
        found.append(role_mark(role))
    if content.rstrip()[-1:] in "?？":
        found.append(IS_QUESTION)
        if only_asks(content):
            found.append(ONLY_ASKS)
    return found


def speaker_marks(name: str | None) -> list[str]:
    """The marks of a speaker's records, one for each term of the name."""
    return [speaker_mark(term) for term in dict.fromkeys(terms(name))] if name else []


def speaker_mark(term: str) -> str:
    """The mark of the records of speakers whose name has this term."""
    return f"\x1fn{term}"


def role_mark(role: str) -> str:
    return f"\x1fr{role.casefold()}"


def own_words(name: str | None, metadata: Mapping[str, Any], content: str) -> str:
    """The speaker, the content, and the texts of the metadata."""
    text = words.spoken(name, content)
    more = attached(metadata) if metadata else ""
    return f"{text}\n{more}" if more else text


def embedded_text(name: str | None, metadata: str | None, content: str) -> str:
    """The text that is embedded for a record, from its columns."""
    return own_words(name, mapping(metadata), content)


def mapping(metadata: str | None) -> Mapping[str, Any]:
    """The metadata of a row; empty if it cannot be read.

    A damaged row must not stop the index. Its checksum reports the damage when the record is read.
    """
    try:
        found = json.loads(metadata) if metadata else {}
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}


def _moment(created_at: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=created_at)
    except (OverflowError, TypeError):
        return _EPOCH


def attached(metadata: Mapping[str, Any]) -> str:
    """The texts in a record's metadata, such as captions, titles and tags, but not ids, addresses or checksums."""
    found: list[str] = []
    room = _MOST_ATTACHED
    for text in _texts(metadata, 0):
        if room <= 0:
            break
        found.append(text[:room])
        room -= len(text)
    return "\n".join(found)


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        if value.strip() and not value.startswith(_OPAQUE_VALUES):
            yield value
    elif depth < _DEEPEST and isinstance(value, Mapping):
        for name, part in value.items():
            if name.casefold().replace("-", "_").rpartition("_")[2] not in _OPAQUE_NAMES:
                yield from _texts(part, depth + 1)
    elif depth < _DEEPEST and isinstance(value, list):
        for part in value:
            yield from _texts(part, depth + 1)
