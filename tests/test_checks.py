"""Checks of arguments: a valid value is returned, and the error for an invalid one names it."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

import pytest

from loom.checks import checked_member, checked_number, checked_object, checked_text, checked_whole
from loom.errors import InvalidInput


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def test_what_passes_comes_back_as_it_is() -> None:
    assert checked_whole(3, "limit", 3) == 3
    assert checked_number(0.5, "share", 0, 1) == 0.5
    assert checked_text("a", "name") == "a"
    assert checked_member(Colour, "red", "colour") is Colour.RED


@pytest.mark.parametrize("value", [2, -1, True, 3.0, "3", None])
def test_a_whole_number_is_no_truth_value_and_not_too_small(value: Any) -> None:
    with pytest.raises(InvalidInput, match="limit must be a whole number of at least 3, not "):
        checked_whole(value, "limit", 3)


@pytest.mark.parametrize("value", [True, False])
def test_a_truth_value_in_the_range_is_no_number(value: bool) -> None:
    with pytest.raises(InvalidInput, match="limit must be a whole number"):
        checked_whole(value, "limit")
    with pytest.raises(InvalidInput, match="share must be a number"):
        checked_number(value, "share")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_is_finite_without_a_range(value: float) -> None:
    with pytest.raises(InvalidInput, match="share must be a number"):
        checked_number(value, "share")


@pytest.mark.parametrize("value", [-0.1, 1.1, True, math.nan, math.inf, "0.5", None])
def test_a_number_is_finite_and_in_its_range(value: Any) -> None:
    with pytest.raises(InvalidInput, match="share must be a number from 0 to 1, not "):
        checked_number(value, "share", 0, 1)


def test_a_range_that_is_open_at_one_side_is_named_by_the_other() -> None:
    with pytest.raises(InvalidInput, match="pause must be a number from 0, not -1"):
        checked_number(-1, "pause", 0)


@pytest.mark.parametrize("value", ["", None, 7])
def test_a_text_is_not_empty(value: Any) -> None:
    with pytest.raises(InvalidInput, match="name must be a text that is not empty"):
        checked_text(value, "name")


def test_an_unknown_member_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="colour 'green' does not exist; it must be one of red, blue"):
        checked_member(Colour, "green", "colour")


@pytest.mark.parametrize("value", [None, 3, {"count": 3}, str])
def test_an_object_has_its_attributes_and_is_no_class(value: Any) -> None:
    assert checked_object("a", "text", "count", "find") == "a"
    with pytest.raises(InvalidInput, match="text must be an object with count and find, not "):
        checked_object(value, "text", "count", "find")
