"""Files of conversations: an array or a single one. A conversation that cannot be read costs only itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from loom.errors import InvalidInput
from loom.importers.json_reader import CutFile, JsonReader, MalformedValue
from loom.importers.messages import HistoryMessage, ImportProblem, Read, SourceFile

__all__ = ["array_or_one", "conversations_in"]


def conversations_in(
    file: SourceFile, opened: BinaryIO, messages: Callable[[Mapping[str, Any], str], Iterator[HistoryMessage]]
) -> Read:
    """Yield the messages of each conversation of a file. `messages` reads one; it may raise `InvalidInput`."""
    for number, value in enumerate(array_or_one(file, JsonReader(opened)), 1):
        if isinstance(value, ImportProblem):
            yield value
            continue
        position = f"conversation {number:,}"
        try:
            if not isinstance(value, Mapping):
                raise InvalidInput("it is no JSON object")
            yield from messages(value, position)
        except InvalidInput as error:
            yield ImportProblem(file.name, position, str(error))


def array_or_one(file: SourceFile, reader: JsonReader) -> Iterator[Any]:
    """Yield the elements of the next value if it is an array, else the value itself, and a problem in place of each
    element that cannot be read."""
    try:
        if reader.kind() != "[":
            yield reader.value()
            return
        for position in reader.elements():
            try:
                found = reader.value()
            except CutFile:
                raise
            except MalformedValue as error:
                yield ImportProblem(file.name, f"byte {position:,}", str(error))
                continue
            yield found
    except MalformedValue as error:
        yield ImportProblem(file.name, f"byte {error.position:,}", str(error), is_cut=isinstance(error, CutFile))
