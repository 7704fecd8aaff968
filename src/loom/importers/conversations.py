"""Files with an array of objects, such as conversations, or with one object. An unreadable object is skipped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, TypeVar

from loom.errors import InvalidInput
from loom.importers.json_reader import CutFile, JsonReader, MalformedValue
from loom.importers.messages import ImportProblem, Messages, Read, SourceFile, messages_of

__all__ = ["array_or_one", "conversations_in", "each_of", "until_malformed"]

T = TypeVar("T")


def conversations_in(file: SourceFile, opened: BinaryIO, messages: Messages) -> Read:
    """Yield the messages of each conversation of a file. `messages` reads one; it may raise `InvalidInput`."""
    return each_of(file, "conversation", array_or_one(file, JsonReader(opened)), messages)


def each_of(file: SourceFile, called: str, values: Iterable[Any], messages: Messages) -> Read:
    """Yield the messages of each value, and a problem in place of each message that cannot be read.

    Positions consist of `called` and the number of the value.
    """
    for number, value in enumerate(values, 1):
        position = f"{called} {number:,}"
        if isinstance(value, ImportProblem):
            yield value
            continue
        try:
            yield from messages_of(value, position, messages)
        except InvalidInput as error:
            yield ImportProblem(file.name, position, str(error))


def array_or_one(file: SourceFile, reader: JsonReader) -> Iterator[Any]:
    """Yield the elements of the next value if it is an array, else the value itself, and a problem in place of each
    element that cannot be read."""
    return until_malformed(file, _elements(file, reader))


def until_malformed(file: SourceFile, values: Iterator[T]) -> Iterator[T | ImportProblem]:
    """Yield values until one of them cannot be read, and then a problem."""
    try:
        yield from values
    except MalformedValue as error:
        yield ImportProblem(file.name, f"byte {error.position:,}", str(error), is_cut=isinstance(error, CutFile))


def _elements(file: SourceFile, reader: JsonReader) -> Iterator[Any]:
    if reader.kind() != "[":
        yield reader.value()
        return
    for position in reader.elements():
        try:
            found = reader.value()
        except CutFile:
            raise
        except MalformedValue as error:
            found = ImportProblem(file.name, f"byte {position:,}", str(error))
        yield found
