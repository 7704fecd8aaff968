"""Tools: schemas from signatures and docstrings, and arguments that are checked before a function sees them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import pytest

from loom.agent import Tool, tool
from loom.agent.tools import as_tool, as_tools
from loom.errors import InvalidInput


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


class Range(TypedDict):
    low: int
    high: int


def everything(
    text: str,
    count: int,
    share: Annotated[float, "from 0 to 1"],
    flag: bool,
    colour: Colour,
    kind: Literal["a", "b"],
    places: tuple[str, ...],
    point: Point,
    points: list[Point],
    bounds: Range,
    table: dict[str, Any],
    maybe: int | None = None,
) -> str:
    """Takes everything.

    It does nothing with it.

    Args:
        text: some words
        count (int): how many
    Returns:
        nothing of use
    """
    return repr((text, count, share, flag, colour, kind, places, point, points, bounds, table, maybe))


def test_a_typed_function_is_a_tool_with_a_schema() -> None:
    made = as_tool(everything)
    assert made.name == "everything"
    assert made.description == "Takes everything.\n\nIt does nothing with it."
    properties = made.parameters["properties"]
    assert properties["text"] == {"type": "string", "description": "some words"}
    assert properties["count"] == {"type": "integer", "description": "how many"}
    assert properties["share"] == {"type": "number", "description": "from 0 to 1"}
    assert properties["flag"] == {"type": "boolean"}
    assert properties["colour"] == {"type": "string", "enum": ["red", "blue"]}
    assert properties["kind"] == {"type": "string", "enum": ["a", "b"]}
    assert properties["places"] == {"type": "array", "items": {"type": "string"}}
    point = {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
        "required": ["x"],
    }
    assert properties["point"] == point
    assert properties["points"] == {"type": "array", "items": point}
    assert properties["bounds"]["required"] == ["high", "low"]
    assert properties["table"] == {"type": "object"}
    assert properties["maybe"] == {"type": "integer"}
    assert "maybe" not in made.parameters["required"]
    json.dumps(made.parameters)


def test_a_function_is_given_the_types_that_it_asks_for() -> None:
    made = as_tool(everything)
    given = {
        "text": "t",
        "count": 2,
        "share": 1,
        "flag": True,
        "colour": "blue",
        "kind": "a",
        "places": ["p", "q"],
        "point": {"x": 1},
        "points": [{"x": 2, "y": 3}],
        "bounds": {"low": 1, "high": 2},
        "table": {"k": None},
    }
    expected = everything(
        "t", 2, 1.0, True, Colour.BLUE, "a", ("p", "q"), Point(1), [Point(2, 3)], {"low": 1, "high": 2}, {"k": None}
    )
    assert made.function(**made.arguments(json.dumps(given))) == expected


def test_fields_of_docstrings_are_read_too() -> None:
    def look(order: str) -> str:
        """Where an order is.

        :param order: its number
        """
        return order

    made = as_tool(look)
    assert made.description == "Where an order is."
    assert made.parameters["properties"]["order"]["description"] == "its number"


def test_the_decorator_says_more_and_leaves_the_function_as_it_is() -> None:
    @tool(name="find-it", description="Finds it.", read_only=True, timeout_s=3)
    def find(what: str) -> str:
        return what.upper()

    assert find("x") == "X"
    made = as_tool(find)
    assert (made.name, made.description, made.read_only, made.timeout_s) == ("find-it", "Finds it.", True, 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{not json", "not valid JSON"),
        ("[1]", "must be an object"),
        ({}, "needs order"),
        ({"order": "1", "nonsense": 2}, "has no nonsense"),
        ({"order": 7}, "must be string, not int"),
        ({"order": "1", "days": True}, "must be integer, not bool"),
        ({"order": "1", "days": "3"}, "must be integer, not str"),
        ({"order": "1", "tags": ["a", 5]}, "an item of tags"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_reason(given: Any, message: str) -> None:
    def look(order: str, days: int = 7, tags: list[str] | None = None) -> str:
        return f"{order} {days} {tags}"

    with pytest.raises(InvalidInput, match=message):
        as_tool(look).arguments(given)


def test_what_cannot_be_a_tool_is_refused_when_it_is_made() -> None:
    def unnamed(*parts: str) -> str:
        return "".join(parts)

    def foreign(socket: complex) -> str:
        return str(socket)

    def fine(text: str) -> str:
        return text

    for given, message in (
        (unnamed, "names every argument"),
        (foreign, "JSON cannot represent"),
        (lambda text: text, "name of a tool"),
        (3, "a tool must be a function"),
        (str, "a tool must be a function"),
    ):
        with pytest.raises(InvalidInput, match=message):
            as_tool(given)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="two tools"):
        as_tools([fine, fine])
    with pytest.raises(InvalidInput, match="list of functions"):
        as_tools("fine")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="name of a tool"):
        Tool("no spaces please", "", {}, fine)
